"""Messages and errors: what is written is what the schema says, and the tables agree with the C++
ones.
"""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from libdsec import _codec, errors
from libdsec.errors import DSecError, InvalidArgumentError, NotFoundError, ProtocolError

SOURCE = Path(__file__).resolve().parents[3] / "src"


def request(fill: _codec.Fill, key: str = ""):
    data = _codec.encode_request(7, 1500, key, fill)
    with _codec.schema.Request.from_bytes(data) as reader:
        return reader.as_builder()


def reply(member: str, **fields: object) -> bytes:
    message = _codec.schema.Reply.new_message()
    message.id = 7
    body = message.body.init(member)
    for name, value in fields.items():
        setattr(body, name, value)
    return message.to_bytes()


def test_a_request_carries_its_envelope():
    message = request(_codec.void("ping"), key="k1")
    assert (message.id, message.deadlineMs, message.idempotencyKey) == (7, 1500, "k1")
    assert message.body.which() == "ping"


def test_create_carries_every_field():
    message = request(
        _codec.create_sandbox(
            image="debian:12",
            workspace="w:1",
            toolkits=["a:1", "b:2"],
            cpu_millis=1500,
            memory_mb=512,
            pids_limit=64,
            idle_ttl_seconds=300,
            absolute_ttl_seconds=9,
            env={"A": "1", "B": "ü"},
            init_user="root",
            workdir="/w",
            network_rules={"npm": False, "pypi": True},
            hostname="h",
            labels={"l": "v"},
            backend="container",
            detached=True,
            on_failure="snapshot",
        )
    )
    create = message.body.createSandbox
    assert (create.image, create.workspace, list(create.toolkits)) == (
        "debian:12",
        "w:1",
        ["a:1", "b:2"],
    )
    assert (create.cpuMillis, create.memoryMb, create.pidsLimit) == (1500, 512, 64)
    assert (create.idleTtlSeconds, create.absoluteTtlSeconds) == (300, 9)
    assert [(e.name, e.value) for e in create.env] == [("A", "1"), ("B", "ü")]
    assert [(r.service, r.allow) for r in create.networkRules] == [("npm", False), ("pypi", True)]
    assert (create.initUser, create.workdir, create.hostname) == ("root", "/w", "h")
    assert [(e.name, e.value) for e in create.labels] == [("l", "v")]
    assert create.backend == "container"
    assert create.detached
    assert str(create.onFailure) == "snapshot"


def test_hello_carries_the_lease():
    hello = request(_codec.hello("libdsec", "lease-1", 2500)).body.hello
    assert (hello.client, hello.leaseId, hello.leaseMs) == ("libdsec", "lease-1", 2500)
    detach = request(_codec.set_detached("e0-a", True)).body.setDetached
    assert (detach.sandboxId, detach.detached) == ("e0-a", True)


def test_exec_is_either_argv_or_shell():
    def fill(argv, shell):
        return _codec.exec_command(
            sandbox_id="s", command_id="c", argv=argv, shell=shell, env={"K": "v"}, cwd="/",
            user="u", stdin=b"\0\xff", timeout_ms=1000, output_limit=10, use_entrypoint=not shell,
            wait=True,
        )  # fmt: skip

    message = request(fill(["ls", "-l"], "")).body.exec
    assert (list(message.argv), message.shell) == (["ls", "-l"], "")
    assert (message.stdin, message.timeoutMs, message.outputLimit, message.wait) == (
        b"\0\xff", 1000, 10, True,
    )  # fmt: skip
    assert message.useEntrypoint
    message = request(fill([], "ls | wc")).body.exec
    assert (list(message.argv), message.shell) == ([], "ls | wc")
    assert not message.useEntrypoint


@pytest.mark.parametrize(
    "fill",
    [
        _codec.sandbox_ref("getSandbox", 5),
        _codec.sandbox_ref("getSandbox", "\udc80"),
        _codec.command_ref("getCommand", "s", "c", wait_ms=-1),
        _codec.command_ref("getCommand", "s", "c", wait_ms=1 << 32),
        _codec.write_file("s", "/a", 5, offset=0, mode=0, user="", operation_id=""),
    ],
)
def test_a_value_that_does_not_fit_is_an_invalid_argument(fill):
    with pytest.raises(InvalidArgumentError) as caught:
        _codec.encode_request(1, 1, "", fill)
    assert "\n" not in caught.value.message


def test_a_request_over_the_message_limit_is_refused():
    fill = _codec.write_file(
        "s", "/a", b"x" * (17 << 20), offset=0, mode=0, user="", operation_id=""
    )
    with pytest.raises(InvalidArgumentError, match="protocol allows"):
        _codec.encode_request(1, 1, "", fill)


def test_an_error_reply_is_a_typed_exception():
    data = reply("error", code="not_found", message="no sandbox x", object="x", retryable=False)
    request_id, member, error = _codec.decode_reply(data)
    assert (request_id, member) == (7, "error")
    assert isinstance(error, NotFoundError)
    assert (error.code, error.message, error.object, error.retryable) == (
        "not_found", "no sandbox x", "x", False,
    )  # fmt: skip


def test_an_error_code_of_a_newer_server_keeps_its_code():
    data = reply("error", code="on_fire", message="run", retryable=True)
    error = _codec.decode_reply(data)[2]
    assert type(error) is DSecError
    assert (error.code, error.retryable, error.exit_code) == ("on_fire", True, 70)


def test_a_command_reply_keeps_bytes_and_state():
    data = reply(
        "command", sandboxId="s", commandId="c", state="ended", exitCode=137, signal=9,
        timedOut=True, oomKilled=True, stdout=b"\0\xff", stdoutTotal=2, stderrTotal=3,
        stderrTruncated=True, durationUs=2500, argv=["a", "b"],
    )  # fmt: skip
    state = _codec.decode_reply(data)[2]
    assert state.ended
    assert (state.exit_code, state.signal, state.timed_out, state.oom_killed) == (
        137,
        9,
        True,
        True,
    )
    assert (state.stdout, state.stdout_total, state.stderr_total) == (b"\0\xff", 2, 3)
    assert (state.stdout_truncated, state.stderr_truncated) == (False, True)
    assert (state.duration_us, state.argv) == (2500, ("a", "b"))


def test_an_unset_body_is_the_error_of_its_request():
    message = _codec.schema.Reply.new_message()
    message.id = 7
    request_id, member, error = _codec.decode_reply(message.to_bytes())
    assert (request_id, member) == (7, "error")
    assert isinstance(error, ProtocolError)


@pytest.mark.parametrize(
    "data", [b"", b"\0" * 7, b"\0" * 4 + b"\xff" * 4, b"\xff" * 64, b'{"id": 1}       ']
)
def test_rubbish_is_a_protocol_error(data):
    with pytest.raises(ProtocolError):
        _codec.decode_reply(data)


def test_a_truncated_reply_is_a_protocol_error():
    whole = reply("error", code="io", message="x" * 100)
    for length in range(0, len(whole), 8):
        try:
            _, member, value = _codec.decode_reply(whole[:length])
        except ProtocolError:
            continue
        assert member == "error"
        assert isinstance(value, DSecError)


def test_the_limits_are_those_of_the_server():
    text = (SOURCE / "proto" / "limits.hpp").read_text()

    def limit(name: str) -> int:
        expression = re.search(rf"{name} = (\d+)U?(?: << (\d+)U)?;", text)
        assert expression, name
        return int(expression[1]) << int(expression[2] or 0)

    assert limit("protocol_version") == _codec.PROTOCOL_VERSION
    assert limit("max_message_bytes") == _codec.MAX_MESSAGE_BYTES
    assert limit("max_data_bytes") == _codec.MAX_DATA_BYTES
    assert limit("max_in_flight") == _codec.MAX_IN_FLIGHT
    assert f'feature_streams = "{_codec.FEATURE_STREAMS}"' in text


def test_every_error_code_has_its_class_with_the_same_exit_code_and_advice():
    text = (SOURCE / "base" / "error.cpp").read_text()
    rows = re.findall(r'row\{errc::(\w+), "(\w+)", (true|false), (\d+), \d+\}', text)
    table = {name: (retry == "true", int(code)) for _, name, retry, code in rows if name != "ok"}
    assert len(table) >= 20
    ours = {code: (c.retryable, c.exit_code) for code, c in errors.ERROR_CLASSES.items()}
    assert ours == table


def test_exceptions_survive_pickling():
    for cls in errors.ERROR_CLASSES.values():
        error = pickle.loads(pickle.dumps(cls("m", object="o", retryable=True)))
        assert type(error) is cls
        assert (error.message, error.object, error.code, error.retryable) == (
            "m", "o", cls.code, True,
        )  # fmt: skip


def test_a_text_that_is_no_utf_8_costs_itself_not_the_reply():
    data = reply("command", commandId="c1", argv=["sh", "-c", "QQQ"], exitCode=3)
    _, member, state = _codec.decode_reply(data.replace(b"QQQ", b"a\xe6\xbc"))
    assert member == "command"
    assert (state.id, state.exit_code, state.argv) == ("c1", 3, ("sh", "-c", "a\ufffd"))
    data = reply("error", code="not_found", message="QQQ", object="QQQ", retryable=False)
    _, member, error = _codec.decode_reply(data.replace(b"QQQ", b"b\xff\xff"))
    assert isinstance(error, NotFoundError)
    assert (error.message, error.object) == ("b\ufffd\ufffd",) * 2
    data = reply("sandbox", sandboxId="e0-a", image="QQQ", warnings=["QQQ"])
    _, member, info = _codec.decode_reply(data.replace(b"QQQ", b"\xffxy"))
    assert (info.id, info.image, info.warnings) == ("e0-a", "\ufffdxy", ("\ufffdxy",))


def test_a_list_that_was_cut_is_marked():
    message = _codec.schema.Reply.new_message()
    message.body.init("sandboxes", 1)[0].sandboxId = "e0-a"
    _, _, whole = _codec.decode_reply(message.to_bytes())
    assert not isinstance(whole, _codec.PartialList)
    message.clear_write_flag()
    message.truncated = True
    _, _, cut = _codec.decode_reply(message.to_bytes())
    assert [s.id for s in cut] == ["e0-a"]
    with pytest.warns(UserWarning, match="only 1 sandboxes"):
        cut.warn("sandboxes")

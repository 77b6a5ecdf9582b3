"""Commands and files, asynchronously: results, output in pieces, limits, cancellation."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time

import pytest

from fake_server import FakeServer, fill_command, pattern, until
from libdsec import (
    AsyncSandbox,
    CommandFailed,
    DeadlineExceededError,
    DSecError,
    ExecFailedError,
    InvalidArgumentError,
    IoError,
    NotFoundError,
    Sandbox,
    TooLargeError,
    UnsupportedError,
    _async_commands,
    _codec,
    _connection,
    _streams,
)


def in_sandbox(work):
    """Runs `work(sandbox)` to its end."""

    async def main():
        async with await AsyncSandbox.create("tiny:1") as sandbox:
            return await work(sandbox)

    return asyncio.run(main())


def test_a_result_has_all_fields(server: FakeServer):
    r = in_sandbox(lambda s: s.commands.run("echo hi"))
    assert (r.stdout, r.stderr, r.stdout_bytes, r.stderr_bytes) == ("hi\n", "", b"hi\n", b"")
    assert (r.exit_code, r.signal, r.timed_out, r.oom_killed) == (0, 0, False, False)
    assert (r.stdout_truncated, r.stderr_truncated) == (False, False)
    assert (r.stdout_total, r.stderr_total) == (3, 0)
    assert r.duration == 0.0015
    assert r.ok


def test_a_non_zero_exit_is_a_result(server: FakeServer):
    r = in_sandbox(lambda s: s.commands.run("err no such thing"))
    assert (r.exit_code, r.stderr) == (1, "no such thing\n")


def test_check_raises_what_is_no_platform_error(server: FakeServer):
    with pytest.raises(CommandFailed, match="exited with 1: no such thing") as caught:
        in_sandbox(lambda s: s.commands.run("err no such thing", check=True))
    assert not isinstance(caught.value, DSecError)
    assert caught.value.result.exit_code == 1
    with pytest.raises(CommandFailed, match="time limit"):
        in_sandbox(lambda s: s.commands.run("hang", timeout=0.1, check=True))


def test_a_program_that_cannot_start_is_a_platform_error(server: FakeServer):
    with pytest.raises(ExecFailedError):
        in_sandbox(lambda s: s.commands.run(["nosuch"]))


def test_a_server_that_says_nothing_holds_no_command_up(server: FakeServer, monkeypatch):
    monkeypatch.setattr(_connection, "_GRACE_SECONDS", 0.1)
    monkeypatch.setattr(_async_commands, "_MARGIN_SECONDS", 1)

    async def work(s):
        server.silent = True
        started = time.monotonic()
        with pytest.raises(DeadlineExceededError) as caught:
            await s.commands.run("echo hi", timeout=0.5)
        assert time.monotonic() - started < 5
        server.silent = False
        return caught.value.object

    assert in_sandbox(work)  # the command's id: it can be asked for later


@pytest.mark.parametrize("timeout", [0, -1, math.nan, math.inf, "2", True, 2**40])
def test_a_time_limit_that_is_none_is_an_error_of_the_caller(server: FakeServer, timeout):
    async def work(s):
        with pytest.raises(InvalidArgumentError, match="timeout"):
            await s.commands.run("echo hi", timeout=timeout)
        command = await s.commands.start("echo hi")
        if timeout != 0:
            with pytest.raises(InvalidArgumentError, match="timeout"):
                await command.wait(timeout)

    in_sandbox(work)
    with pytest.raises(InvalidArgumentError, match="timeout"):
        Sandbox.create("tiny:1", timeout=timeout)
    with pytest.raises(InvalidArgumentError, match="timeout"):
        Sandbox.create_many(1, "tiny:1", timeout=timeout)
    assert server.creates == 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"cmd": 5}, {"cmd": ["ls", None]}, {"env": ["A"]}, {"env": {"A": 1}},
        {"env": {1: "a"}}, {"cwd": 5}, {"user": 0.5}, {"stdin": 7}, {"stdin": "\ud800"},
        {"output_limit": -1}, {"output_limit": 2**64}, {"output_limit": "1"}, {"cmd": "\ud800"},
    ],
)  # fmt: skip
def test_arguments_of_a_wrong_kind_are_errors_of_the_caller(server: FakeServer, arguments):
    async def work(s):
        with pytest.raises(InvalidArgumentError):
            await s.commands.run(**{"cmd": "echo hi"} | arguments)

    in_sandbox(work)
    assert server.starts == []


@pytest.mark.parametrize(
    "arguments",
    [
        {"image": 5}, {"env": ["A"]}, {"labels": 3}, {"toolkits": 5}, {"network_rules": ["pypi"]},
        {"cpu": "2"}, {"memory_mb": math.nan}, {"hostname": 5}, {"idempotency_key": 5},
        {"ttl": -1}, {"pids": 2**32}, {"env": {"A": "\ud800"}},
    ],
)  # fmt: skip
def test_a_sandbox_of_wrong_arguments_is_an_error_of_the_caller(server: FakeServer, arguments):
    with pytest.raises(InvalidArgumentError):
        Sandbox.create(**{"image": "tiny:1"} | arguments)
    assert server.creates == 0


@pytest.mark.parametrize("data", [5, None, ["a"], "\ud800"])
def test_a_file_of_what_is_no_data_is_an_error_of_the_caller(server: FakeServer, data):
    async def work(s):
        with pytest.raises(InvalidArgumentError):
            await s.files.write("/f", data)
        with pytest.raises(InvalidArgumentError):
            await s.files.write_text("/f", data)
        with pytest.raises(InvalidArgumentError):
            await s.files.write_text("/f", "text", encoding="no such")

    in_sandbox(work)
    assert server.writes == 0


def test_environment_directory_user_and_limit_reach_the_server(server: FakeServer):
    async def work(s):
        env = await s.commands.run("env", env={"A": "1", "B": "two words"})
        where = await s.commands.run("where", cwd="/tmp", user="nobody", timeout=2.5)
        return env.stdout, where.stdout

    assert in_sandbox(work) == ("A=1\nB=two words", "/tmp nobody 2500")


def test_bytes_are_exact_and_text_never_fails(server: FakeServer):
    r = in_sandbox(lambda s: s.commands.run("random"))
    assert r.stdout_bytes == r.stderr_bytes == bytes(range(256)) * 16
    assert "\ufffd" in r.stdout
    assert len(r.stderr) == 4096


def test_stdin_is_text_or_bytes(server: FakeServer):
    async def work(s):
        return [
            (await s.commands.run(["cat"])).stdout_bytes,
            (await s.commands.run(["cat"], stdin="ü")).stdout_bytes,
            (await s.commands.run(["cat"], stdin=b"\0\xff")).stdout_bytes,
        ]

    assert in_sandbox(work) == [b"", "ü".encode(), b"\0\xff"]


def test_stdin_over_the_limit_says_what_to_do(server: FakeServer):
    with pytest.raises(TooLargeError, match=r"files\.write"):
        in_sandbox(lambda s: s.commands.run(["cat"], stdin=b"x" * (_codec.MAX_DATA_BYTES + 1)))


@pytest.mark.parametrize("cmd", ["", [], ()])
def test_an_empty_command_is_refused(server: FakeServer, cmd):
    with pytest.raises(InvalidArgumentError):
        in_sandbox(lambda s: s.commands.run(cmd))


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf")])
def test_a_limit_that_is_none_is_refused(server: FakeServer, timeout):
    with pytest.raises(InvalidArgumentError):
        in_sandbox(lambda s: s.commands.run("true", timeout=timeout))


@pytest.mark.parametrize("size", [0, 1, 1 << 20, (1 << 20) + 1, 5_000_000])
def test_output_of_any_size_arrives_whole(server: FakeServer, size):
    server.output_piece = 700_001
    r = in_sandbox(lambda s: s.commands.run(f"out {size}"))
    assert r.stdout_bytes == pattern(size)
    assert r.stdout_total == size
    assert not r.stdout_truncated
    assert r.stdout_dropped == ()


def test_truncated_output_is_head_and_tail_and_says_what_is_missing(server: FakeServer):
    server.output_piece = 300_000
    r = in_sandbox(lambda s: s.commands.run("out 5000000", output_limit=1_000_000))
    whole = pattern(5_000_000)
    assert r.stdout_truncated
    assert r.stdout_total == 5_000_000
    assert r.stdout_bytes == whole[:500_000] + whole[-500_000:]
    assert r.stdout_dropped == ((500_000, 4_000_000),)
    assert r.exit_code == 0


@pytest.mark.parametrize("limit", [0, 2_500_000])
@pytest.mark.parametrize("room", [0, 10, 2_000_000])
def test_output_that_the_servers_disk_did_not_take_is_an_error_of_the_result(
    server: FakeServer, room: int, limit: int
):
    server.room = room
    r = in_sandbox(lambda s: s.commands.run("out 3000000", output_limit=limit))
    assert (r.exit_code, r.ok, r.stdout_truncated) == (0, False, True)
    assert r.stdout_total == 3_000_000
    assert r.stdout_bytes == pattern(room)
    assert r.stdout_dropped == ((room, 3_000_000 - room),)
    assert isinstance(r.error, IoError)
    assert (r.error.code, r.error.object) == ("io", r.command_id)
    assert f"{3_000_000 - room} of 3000000 bytes of its stdout" in r.error.message


def test_output_that_the_servers_disk_did_not_take_raises_where_success_is_asked_for(
    server: FakeServer,
):
    async def stream(s):
        return [data async for _, data in (await s.commands.start("out 3000000")).stream()]

    server.room = 100
    with pytest.raises(IoError, match="2999900 of 3000000"):
        in_sandbox(lambda s: s.commands.run("out 3000000", check=True))
    with pytest.raises(IoError, match="2999900 of 3000000"):
        in_sandbox(stream)


def test_the_servers_time_limit_is_a_result(server: FakeServer):
    async def work(s):
        return [await s.commands.run("hang", timeout=0.05) for _ in range(20)]

    assert [(r.timed_out, r.exit_code) for r in in_sandbox(work)] == [(True, 137)] * 20


def test_a_command_longer_than_one_request_is_followed(server: FakeServer, monkeypatch):
    monkeypatch.setattr(_async_commands, "_SLICE_SECONDS", 0.1)
    monkeypatch.setattr(_async_commands, "_MARGIN_SECONDS", 0.2)
    r = in_sandbox(lambda s: s.commands.run("hang", timeout=1.2))
    assert r.timed_out
    assert len(server.starts) == 1
    assert server.requests.count("getCommand") >= 3


def test_a_command_that_was_never_started_in_time_is_a_deadline_error(
    server: FakeServer, monkeypatch
):
    async def work(s):
        server.next_error["exec"] = ("deadline_exceeded", "the queue was long", s.id, True)
        with pytest.raises(DeadlineExceededError, match="the queue was long"):
            await s.commands.run("echo hi")

    in_sandbox(work)
    assert server.starts == []


def test_a_server_that_forgets_a_commands_limit_does_not_hang_the_client(server, monkeypatch):
    monkeypatch.setattr(_async_commands, "_SLICE_SECONDS", 0.1)
    monkeypatch.setattr(_async_commands, "_MARGIN_SECONDS", 0.2)
    monkeypatch.setattr(FakeServer, "_end", lambda *_: None)
    started = time.monotonic()
    with pytest.raises(DeadlineExceededError, match="still runs"):
        in_sandbox(lambda s: s.commands.run("hang", timeout=0.3))
    assert time.monotonic() - started < 10


def test_a_server_that_does_not_wait_is_not_flooded(server: FakeServer, monkeypatch):
    async def at_once(self, reply, body, request):
        fill_command(reply.body.init("command"), self.commands[body.sandboxId, body.commandId])

    monkeypatch.setattr(FakeServer, "_do_getCommand", at_once)

    async def work(s):
        return await (await s.commands.start("hang", timeout=1)).wait()

    assert in_sandbox(work).timed_out
    assert server.requests.count("getCommand") <= 6


def test_cancelling_a_run_kills_its_command(server: FakeServer):
    async def work(s):
        run = asyncio.create_task(s.commands.run("hang", timeout=60))
        await until(lambda: server.starts)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        command = await s.commands.get(server.starts[0])
        assert command.state.ended
        assert command.state.exit_code == 137
        return await s.commands.run("echo next")

    assert in_sandbox(work).stdout == "next\n"


def test_wait_for_bounds_a_run(server: FakeServer):
    async def work(s):
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(s.commands.run("hang"), 0.2)
        assert (await s.commands.get(server.starts[0])).state.ended

    in_sandbox(work)


def test_a_handle_polls_waits_and_kills(server: FakeServer):
    async def work(s):
        command = await s.commands.start("hang")
        assert command.running
        assert command.result is None
        assert await command.poll()
        with pytest.raises(DeadlineExceededError, match="still runs"):
            await command.wait(timeout=0.1)
        result = await command.kill()
        assert command.result is result
        assert not await command.poll()
        assert (result.exit_code, result.signal, result.timed_out) == (137, 9, False)
        assert await command.kill() == result

    in_sandbox(work)


def test_a_handle_has_output_and_result(server: FakeServer):
    async def work(s):
        command = await s.commands.start("echo out")
        result = await command.wait()
        assert (command.stdout, command.stderr, command.stdout_bytes) == ("out\n", "", b"out\n")
        assert command.argv == ("echo", "out")
        return result

    assert in_sandbox(work).stdout == "out\n"


def test_a_stream_gives_every_byte_of_both_outputs(server: FakeServer):
    server.output_piece = 999

    async def work(s):
        command = await s.commands.start("random")
        parts = {"stdout": b"", "stderr": b""}
        async for name, data in command.stream():
            parts[name] += data
        return parts

    data = bytes(range(256)) * 16
    assert in_sandbox(work) == {"stdout": data, "stderr": data}


def test_a_stream_is_sent_no_more_than_its_window_ahead(server: FakeServer):
    size = 8 * _streams.WINDOW

    async def work(s):
        command = await s.commands.start(f"out {size}")
        got = 0
        async for _, data in command.stream():
            got += len(data)
        return got

    assert in_sandbox(work) == size
    assert server.most_credit <= _streams.WINDOW
    assert "readOutput" not in server.requests
    assert not server.streams


def test_streams_beyond_what_a_connection_has_open_another(server: FakeServer):
    server.max_streams = 4

    async def follow_one(s, i):
        command = await s.commands.start("hang", command_id=f"c{i}", timeout=1)
        return [data async for _, data in command.stream()]

    async def work(s):
        return await asyncio.gather(*(follow_one(s, i) for i in range(10)))

    assert in_sandbox(work) == [[]] * 10
    assert server.connections >= 5


def test_a_stream_that_is_left_is_closed(server: FakeServer):
    async def work(s):
        command = await s.commands.start("hang", timeout=60)
        server.commands[s.id, command.id].stdout = b"before"
        async with contextlib.aclosing(command.stream()) as pieces:
            assert await anext(pieces) == ("stdout", b"before")
            assert server.streams
        await until(lambda: not server.streams)
        await command.kill()

    in_sandbox(work)


def test_a_server_without_streams_is_told_apart(server: FakeServer):
    server.max_streams = 0

    async def work(s):
        command = await s.commands.start("echo x")
        return [piece async for piece in command.stream()]

    with pytest.raises(UnsupportedError, match="has no streams"):
        in_sandbox(work)


def test_output_is_handed_over_as_it_comes(server: FakeServer):
    server.output_piece = 1000
    pieces: list[bytes] = []
    r = in_sandbox(
        lambda s: s.commands.run("out 10000", on_stdout=pieces.append, on_stderr=pieces.append)
    )
    assert b"".join(pieces) == r.stdout_bytes == pattern(10_000)
    assert len(pieces) > 5


def test_an_exception_of_who_is_handed_output_kills_the_command(server: FakeServer):
    def refuse(data: bytes) -> None:
        raise ValueError("enough")

    async def work(s):
        running = asyncio.create_task(s.commands.run("hang", on_stdout=refuse, timeout=60))
        await until(lambda: server.starts)
        server.commands[s.id, server.starts[0]].stdout = b"x"
        with pytest.raises(ValueError, match="enough"):
            await running
        return server.commands[s.id, server.starts[0]]

    assert in_sandbox(work).signal == 9


def test_a_file_is_streamed(server: FakeServer):
    server.files["/f"] = pattern(3_000_000)

    async def work(s):
        with pytest.raises(NotFoundError):
            [piece async for piece in s.files.stream("/none")]
        return [piece async for piece in s.files.stream("/f")]

    pieces = in_sandbox(work)
    assert b"".join(pieces) == pattern(3_000_000)
    assert max(map(len, pieces)) <= 128 << 10


def test_a_stream_of_a_running_command_ends_with_it(server: FakeServer):
    async def work(s):
        command = await s.commands.start("hang", timeout=0.5)
        server.commands[s.id, command.id].stdout = b"before"
        return [piece async for piece in command.stream()]

    assert in_sandbox(work) == [("stdout", b"before")]


def test_commands_are_listed_and_found(server: FakeServer):
    async def work(s):
        await s.commands.run("echo 1")
        started = await s.commands.start("hang", command_id="mine")
        listed = await s.commands.list()
        assert [c.argv for c in listed] == [("echo", "1"), ("hang",)]
        assert [c.running for c in listed] == [False, True]
        found = await s.commands.get("mine")
        assert found.id == started.id
        with pytest.raises(NotFoundError):
            await s.commands.get("none")

    in_sandbox(work)


def test_a_known_command_id_is_not_started_again(server: FakeServer):
    async def work(s):
        first = await s.commands.start("echo 1", command_id="once")
        second = await s.commands.start("echo 2", command_id="once")
        return (await first.wait()).stdout, (await second.wait()).stdout

    assert in_sandbox(work) == ("1\n", "1\n")
    assert server.starts == ["once"]


@pytest.mark.parametrize("size", [0, 1, (8 << 20) - 1, 8 << 20, (8 << 20) + 1, 20_000_003])
def test_files_of_any_size_are_exact(server: FakeServer, size):
    async def work(s):
        await s.files.write("/f", pattern(size))
        return await s.files.read("/f")

    assert in_sandbox(work) == pattern(size)
    assert server.files["/f"] == pattern(size)
    assert server.requests.count("writeFile") == max(1, -(-size // (8 << 20)))
    assert server.largest_message <= (8 << 20) + 1024


def test_a_file_is_exact_when_replies_are_lost(server: FakeServer):
    server.lose_after["writeFile"] = server.lose_after["readFile"] = 2
    server.lose_before["writeFile"] = 1

    async def work(s):
        await s.files.write("/f", pattern(20_000_003))
        return await s.files.read("/f")

    assert in_sandbox(work) == pattern(20_000_003)


def test_a_shorter_write_replaces_the_whole_file(server: FakeServer):
    async def work(s):
        await s.files.write("/f", b"long content")
        await s.files.write("/f", b"short")
        return await s.files.read("/f")

    assert in_sandbox(work) == b"short"


def test_text_files(server: FakeServer):
    async def work(s):
        await s.files.write_text("/f", "übung\r\n")
        await s.files.write("/g", "ü")
        await s.files.write("/h", memoryview(b"\xff!"))
        return [await s.files.read_text(path) for path in ("/f", "/g", "/h")]

    assert in_sandbox(work) == ["übung\r\n", "ü", "\ufffd!"]


def test_a_missing_file_is_not_found(server: FakeServer):
    with pytest.raises(NotFoundError) as caught:
        in_sandbox(lambda s: s.files.read("/none"))
    assert caught.value.object == "/none"


def test_the_context_manager_stops_what_it_created_only(server: FakeServer):
    async def main():
        async with await AsyncSandbox.create("tiny:1") as sandbox:
            async with await AsyncSandbox.connect(sandbox.id) as other:
                assert other.id == sandbox.id
            assert (await sandbox.info()).phase == "running"
        assert sandbox.phase == "stopped"
        assert (await sandbox.info()).cause == "killed"

    asyncio.run(main())


def test_the_bodys_exception_is_not_hidden_by_a_failed_stop(server: FakeServer):
    async def main():
        async with await AsyncSandbox.create("tiny:1"):
            server.next_error["stopSandbox"] = ("internal", "cannot stop", "", False)
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        asyncio.run(main())


def test_a_failed_stop_is_told_when_nothing_else_is(server: FakeServer):
    async def main():
        async with await AsyncSandbox.create("tiny:1"):
            server.next_error["stopSandbox"] = ("internal", "cannot stop", "", False)

    with pytest.raises(DSecError, match="cannot stop"):
        asyncio.run(main())


@pytest.mark.parametrize(
    "arguments",
    [
        {"image": ""},
        {"image": "x", "toolkits": "pytest:8"},
        {"image": "x", "cpu": -1},
        {"image": "x", "memory_mb": 2**32},
        {"image": "x", "idle_ttl": float("nan")},
        {"image": "x", "network_rules": {"pypi": "yes"}},
        {"image": "x", "on_failure": "keep"},
        {"image": "x", "env": {"A": 1}},
    ],
)
def test_arguments_that_no_server_could_accept_are_refused(server: FakeServer, arguments):
    with pytest.raises(InvalidArgumentError):
        asyncio.run(AsyncSandbox.create(**arguments))
    assert server.creates == 0


def test_limits_are_rounded_up(server: FakeServer):
    async def main():
        return await AsyncSandbox.create("tiny:1", cpu=0.0001, idle_ttl=0.2, ttl=1.5)

    known = server.sandboxes[asyncio.run(main()).id]
    assert (known["cpuMillis"], known["idle"], known["absolute"]) == (1, 1, 2)

"""The public interface against a real daemon: life, commands, files, identity, errors."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import TINY
from host import eventually

from libdsec import (
    AsyncSandbox,
    ConflictError,
    DSecClient,
    DSecContainerRunArgs,
    DSecError,
    ExecFailedError,
    InvalidArgumentError,
    NotFoundError,
    Sandbox,
    SandboxFailedError,
    UnauthenticatedError,
    WrongPhaseError,
)


def test_the_listing_that_dsec_published(run_async):
    async def main():
        client = DSecClient()
        await client.open()
        args = DSecContainerRunArgs(
            container_image=TINY,
            memory_limit_mb=4096,
            cpu_cores_limit=4,
            ttl_running_stop=300,
            network_rules={"npm": False, "pypi": True},
            init_user="root",
        )
        sandbox = await client.run_container(args, timeout=120)
        result = await sandbox.run_shell("echo hello world")
        await sandbox.stop()
        return sandbox, result

    sandbox, result = run_async(main())
    assert (result.stdout, result.stderr, result.exit_code) == ("hello world\n", "", 0)
    assert sandbox.phase == "stopped"
    assert len(sandbox.warnings) == 1
    assert "pypi" in sandbox.warnings[0]


def test_the_with_example(daemon):
    with Sandbox.create(TINY, cpu=1, memory_mb=512) as sb:
        r = sb.commands.run("echo $((6*7))")
        assert (r.stdout, r.stderr, r.exit_code) == ("42\n", "", 0)
        assert (r.timed_out, r.oom_killed, r.stdout_truncated) == (False, False, False)
        assert 0 < r.duration < 30
        sb.files.write("/root/a.txt", b"...")
        assert sb.files.read("/root/a.txt") == b"..."
        info = sb.info()
        assert (info.phase, info.cause, info.backend) == ("running", "none", "container")
        assert (info.image, info.cpu, info.memory_mb) == (TINY, 1.0, 512)
    assert sb.phase == "stopped"
    assert sb.info().cause == "killed"
    assert sb.info().ended_unix_ms >= sb.info().created_unix_ms


@pytest.mark.parametrize(
    ("rules", "warned"),
    [({}, 0), ({"npm": False}, 0), ({"pypi": True}, 1), ({"npm": True, "pypi": True}, 2)],
)
def test_a_network_rule_without_effect_is_told(daemon, rules, warned):
    with Sandbox.create(TINY, network_rules=rules) as sb:
        assert len(sb.warnings) == warned
        for service, allow in rules.items():
            assert any(service in w for w in sb.warnings) is allow


def test_a_snapshot_on_failure_that_cannot_be_made_is_told(daemon):
    with Sandbox.create(TINY, on_failure="snapshot") as sb:
        (warning,) = sb.warnings
        assert "on_failure" in warning
        assert sb.info().warnings == (warning,)
    with Sandbox.create(TINY, on_failure="none") as sb:
        assert sb.warnings == ()


def test_an_unknown_network_service_is_refused(daemon):
    with pytest.raises(InvalidArgumentError, match="gopher"):
        Sandbox.create(TINY, network_rules={"gopher": True})


def test_an_unknown_image_is_named_with_those_there_are(daemon):
    with pytest.raises(NotFoundError) as caught:
        Sandbox.create("debian-pyton:12")
    assert "debian-pyton:12" in caught.value.message
    assert TINY in caught.value.message
    assert caught.value.object == "debian-pyton:12"
    with pytest.raises(NotFoundError, match="none:1") as caught:
        Sandbox.create(TINY, workspace="none:1")
    assert caught.value.object == "none:1"
    with pytest.raises(NotFoundError, match="tool:9") as caught:
        Sandbox.create(TINY, toolkits=["tool:9"])
    assert caught.value.object == "tool:9"


def test_images_are_listed(run_async):
    async def main():
        async with DSecClient() as client:
            return await client.list_images()

    (image,) = run_async(main())
    assert (f"{image.name}:{image.tag}", image.kind) == (TINY, "base")
    assert image.digest.startswith("sha256:")
    assert image.size_bytes > 100_000


def test_a_wrong_key_is_refused(daemon, monkeypatch):
    monkeypatch.setenv("DSEC_API_KEY", "dsec_" + "a" * 52)
    with pytest.raises(UnauthenticatedError):
        Sandbox.list()


def test_the_same_creation_key_gives_the_same_sandbox(daemon):
    key = f"key-{os.getpid()}-{time.time()}"
    with Sandbox.create(TINY, idempotency_key=key) as first:
        again = Sandbox.create(TINY, idempotency_key=key)
        assert again.id == first.id
        with pytest.raises(ConflictError):
            Sandbox.create(TINY, idempotency_key=key, memory_mb=77)


def test_one_creation_key_used_by_many_at_once_makes_one_sandbox(daemon):
    key = f"many-{os.getpid()}-{time.time()}"
    with ThreadPoolExecutor(16) as threads:
        sandboxes = list(
            threads.map(lambda _: Sandbox.create(TINY, idempotency_key=key), range(16))
        )
    assert len({sb.id for sb in sandboxes}) == 1
    sandboxes[0].stop()


def test_a_command_id_is_never_started_twice(sandbox: Sandbox):
    script = "echo run >> /tmp/runs; sleep 0.3; cat /tmp/runs"
    with ThreadPoolExecutor(8) as threads:
        commands = list(
            threads.map(lambda _: sandbox.commands.start(script, command_id="once"), range(8))
        )
        results = list(threads.map(lambda c: c.wait(), commands))
    assert {r.stdout for r in results} == {"run\n"}
    late = sandbox.commands.start("echo other", command_id="once").wait()
    assert late.stdout == "run\n"
    assert sandbox.files.read("/tmp/runs") == b"run\n"


def test_two_clients_see_one_sandbox(sandbox: Sandbox, run_async):
    async def main():
        async with DSecClient() as one, DSecClient() as two:
            a, b = await one.connect(sandbox.id), await two.connect(sandbox.id)
            command = await a.commands.start("echo started; sleep 60", command_id="shared")
            await a.files.write("/tmp/f", b"from one")
            assert await b.files.read("/tmp/f") == b"from one"
            seen = await b.commands.get("shared")
            assert seen.running
            killed = await seen.kill()
            waited = await command.wait()
            assert killed == waited
            return waited

    result = run_async(main())
    assert (result.stdout, result.exit_code, result.signal) == ("started\n", 137, 9)
    assert not result.timed_out


def test_another_process_sees_it_too(sandbox: Sandbox):
    script = (
        "import sys; from libdsec import Sandbox; "
        "print(Sandbox.connect(sys.argv[1]).commands.run('echo there').stdout, end='')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, sandbox.id], capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("there\n", "")
    assert sandbox.info().phase == "running"  # connect does not own it


def test_sandboxes_are_listed_while_they_live_and_after(daemon):
    with Sandbox.create(TINY, labels={"who": "me"}) as sb:
        (seen,) = [s for s in Sandbox.list() if s.id == sb.id]
        assert seen.alive
        assert seen.labels == {"who": "me"}
    (seen,) = [s for s in Sandbox.list() if s.id == sb.id]
    assert (seen.phase, seen.cause) == ("stopped", "killed")


def test_stop_is_idempotent_and_ends_running_commands(daemon):
    sb = Sandbox.create(TINY)
    outcome: list[object] = []

    def run() -> None:
        try:
            outcome.append(sb.commands.run("echo begun > /tmp/b; sleep 60", timeout=90))
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert eventually(lambda: sb.info().commands_running)
    assert sb.stop().phase == "stopped"
    assert sb.stop().phase == "stopped"
    assert sb.kill().phase == "stopped"
    thread.join(30)
    assert not thread.is_alive()
    (how,) = outcome
    assert isinstance(how, (SandboxFailedError, WrongPhaseError)) or how.exit_code == 137
    with pytest.raises((SandboxFailedError, WrongPhaseError, NotFoundError)):
        sb.commands.run("true")


def test_a_command_whose_sandbox_is_killed_by_another_ends_with_a_typed_error(daemon):
    with Sandbox.create(TINY) as sb:
        running = subprocess.Popen(
            [
                sys.executable, "-m", "libdsec", "exec", sb.id, "--",
                "sh", "-c", "echo so far; sleep 999",
            ],
            env=daemon.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert running.stdout.readline() == "so far\n"
        sb.stop()
        _, error = running.communicate(timeout=5)
        assert running.returncode == SandboxFailedError.exit_code, error
        assert "stopped (killed)" in error
        (command,) = sb.commands.list()
        assert (command.state.state, command.running) == ("lost", False)
        assert command.read("stdout", 0).data == b"so far\n"
        assert list(command.stream()) == [("stdout", b"so far\n")]
        with pytest.raises(SandboxFailedError, match="stopped"):
            command.wait()
        assert sb.info().commands_running == 0


def test_results_of_a_stopped_sandbox_can_still_be_read(daemon):
    with Sandbox.create(TINY) as sb:
        sb.commands.start("echo kept; exit 3", command_id="last").wait()
    command = Sandbox.connect(sb.id).commands.get("last")
    result = command.wait()
    assert (result.stdout, result.exit_code) == ("kept\n", 3)


def test_list_kill_and_output_of_commands(sandbox: Sandbox):
    sandbox.commands.run("exit 4")
    command = sandbox.commands.start("echo now; sleep 60")
    assert eventually(lambda: b"now" in command.read("stdout", 0).data)
    assert [c.running for c in sandbox.commands.list()] == [False, True]
    result = command.kill()
    assert (result.stdout, result.exit_code, result.signal, result.timed_out) == (
        "now\n", 137, 9, False,
    )  # fmt: skip
    assert [c.state.exit_code for c in sandbox.commands.list()] == [4, 137]
    with pytest.raises(NotFoundError):
        sandbox.commands.get("none")


def test_output_is_streamed_while_the_command_runs(sandbox: Sandbox):
    command = sandbox.commands.start(
        "echo first; while [ ! -e /tmp/go ]; do sleep 0.05; done; echo second"
    )
    stream = command.stream()
    assert next(stream) == ("stdout", b"first\n")
    sandbox.files.write("/tmp/go", b"")
    assert b"".join(data for _, data in stream) == b"second\n"


@pytest.mark.parametrize("size", [0, 1, 4096, (8 << 20) - 1, 8 << 20, (8 << 20) + 1, 20_000_003])
def test_files_of_any_size_are_exact(sandbox: Sandbox, size):
    data = os.urandom(size)
    sandbox.files.write("/tmp/f", data)
    out = sandbox.commands.run("sha256sum /tmp/f; stat -c %s /tmp/f", check=True).stdout.split()
    assert (out[0], out[2]) == (hashlib.sha256(data).hexdigest(), str(size))
    assert sandbox.files.read("/tmp/f") == data


def test_a_shorter_file_replaces_a_longer_one(sandbox: Sandbox):
    sandbox.files.write("/tmp/f", b"x" * 100_000)
    sandbox.files.write("/tmp/f", b"short")
    assert sandbox.files.read("/tmp/f") == b"short"


def test_files_have_the_mode_and_owner_asked_for(sandbox: Sandbox):
    sandbox.files.write("/home/agent/run.sh", b"#!/bin/sh\nid -u\n", mode=0o755, user="agent")
    out = sandbox.commands.run("stat -c '%u %a' /home/agent/run.sh; /home/agent/run.sh").stdout
    assert out == "1000 755\n0\n"


def test_file_errors_are_typed(sandbox: Sandbox):
    with pytest.raises(NotFoundError, match="/no/such"):
        sandbox.files.read("/no/such")
    with pytest.raises(InvalidArgumentError):
        sandbox.files.read("relative")
    sandbox.commands.run("echo secret > /root/s; chmod 600 /root/s; chmod 700 /root", check=True)
    with pytest.raises(Exception, match="/root/s") as caught:
        sandbox.files.read("/root/s", user="agent")
    assert caught.value.code == "permission_denied"


def test_environment_directory_and_user(daemon):
    with Sandbox.create(
        TINY, env={"A": "sandbox", "B": "sandbox"}, user="agent", workdir="/home/agent"
    ) as sb:
        r = sb.commands.run("echo $A $B $(id -u):$(id -g) $(pwd)", env={"B": "command"})
        assert r.stdout == "sandbox command 1000:1000 /home/agent\n"
        r = sb.commands.run("echo $(id -u) $(pwd)", user="root", cwd="/tmp")
        assert r.stdout == "0 /tmp\n"
        assert sb.commands.run("echo $HOME").stdout == "/home/agent\n"
        assert sb.commands.run("echo $HOME", user="1234").stdout == "/\n"
        assert sb.commands.run("echo $HOME", env={"HOME": "/x"}).stdout == "/x\n"
        for nobody in ("4294967295", "1000:4294967295"):  # setresuid(2) takes it as "stay root"
            with pytest.raises(ExecFailedError):
                sb.commands.run("id", user=nobody)
            with pytest.raises(DSecError, match=nobody):
                sb.files.write("/root/x", b"x", user=nobody)
        # Such a file says that it is a page long.
        assert sb.files.read("/sys/kernel/uevent_seqnum").strip().isdigit()
        r = sb.commands.run(["id", "-u"], user="65534:65534")
        assert r.stdout == "65534\n"


def test_arguments_are_passed_as_they_are(sandbox: Sandbox):
    words = ["", "two words", "$HOME", "'", '"', "\\", "ü", "a\nb", "*"]
    r = sandbox.commands.run(["printf", "%s\\0", *words])
    assert r.stdout_bytes == b"".join(w.encode() + b"\0" for w in words)


def test_a_long_script_of_other_letters_runs_and_can_be_listed(sandbox: Sandbox):
    for shift in range(3):  # the cut falls on every byte of a character
        script = "#" * shift + "漢字" * 1000 + "\necho 漢字"
        result = sandbox.commands.run(f"true {script}" if shift == 0 else script)
        assert (result.exit_code, result.stdout) == (0, "漢字\n")
    shown = [command.argv for command in sandbox.commands.list()]
    assert len(shown) == 3
    assert all("漢字" * 600 in "".join(argv) and "\ufffd" not in "".join(argv) for argv in shown)


def test_arguments_that_are_no_text_run_and_can_be_listed(sandbox: Sandbox):
    """The schema says Text, Linux says bytes: a client of another language may send them."""
    from libdsec import _codec

    def fill(body) -> None:
        message = body.init("exec")
        message.sandboxId, message.commandId, message.wait = sandbox.id, "bytes", True
        message.argv = ["echo", "QQQQ"]

    encode = _codec.encode_request

    def broken(*arguments):
        return encode(*arguments).replace(b"QQQQ", b"\xff\xe6\xbcz")

    _codec.encode_request = broken
    try:
        state = sandbox._do(lambda s: s._client._request(fill, "command"))
    finally:
        _codec.encode_request = encode
    assert state.stdout == b"\xff\xe6\xbcz\n"
    assert state.argv == ("echo", "\ufffd\ufffd\ufffdz")
    assert [command.argv for command in sandbox.commands.list()] == [state.argv]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"cmd": ["nosuchprogram"]}, "nosuchprogram"),
        ({"cmd": ["/etc/passwd"]}, "/etc/passwd"),
        ({"cmd": "true", "cwd": "/no/such"}, "/no/such"),
        ({"cmd": "true", "user": "martian"}, "martian"),
    ],
)
def test_what_cannot_be_started_is_a_typed_error_naming_it(sandbox: Sandbox, arguments, named):
    with pytest.raises(ExecFailedError) as caught:
        sandbox.commands.run(**arguments)
    assert named in caught.value.message
    assert sandbox.commands.run("echo fine").stdout == "fine\n"


def test_a_program_that_is_not_found_by_the_shell_is_a_result(sandbox: Sandbox):
    assert sandbox.commands.run("nosuchprogram").exit_code == 127


def test_a_signal_is_told(sandbox: Sandbox):
    r = sandbox.commands.run(["sh", "-c", "kill -TERM $$"])
    assert (r.exit_code, r.signal, r.timed_out, r.oom_killed) == (143, 15, False, False)


def test_changes_are_private_to_each_sandbox(daemon):
    with Sandbox.create(TINY) as one, Sandbox.create(TINY) as two:
        one.commands.run("echo 1 > /tmp/x; rm /etc/group; echo evil >> /etc/passwd", check=True)
        assert two.commands.run("ls /tmp; tail -1 /etc/passwd").stdout.startswith("nobody")
        assert two.commands.run("test -e /etc/group").exit_code == 0
        assert one.commands.run("cat /tmp/x").stdout == "1\n"


def test_many_sandboxes_at_once(run_async):
    async def life(client: DSecClient, i: int) -> str:
        args = DSecContainerRunArgs(container_image=TINY, memory_limit_mb=32)
        async with await client.run_container(args) as sandbox:
            await sandbox.files.write("/tmp/i", b"%d" % i)
            return (await sandbox.run_shell("cat /tmp/i; hostname")).stdout

    async def main():
        async with DSecClient() as client:
            return await asyncio.gather(*(life(client, i) for i in range(64)))

    outputs = run_async(main())
    # What each has written, and after it a host name.
    assert [re.split("[a-z]", out)[0] for out in outputs] == [str(i) for i in range(64)]
    assert len(set(outputs)) == 64


def test_many_commands_at_once_in_one_sandbox(sandbox: Sandbox):
    with ThreadPoolExecutor(64) as threads:
        outputs = list(
            threads.map(lambda i: sandbox.commands.run(["echo", str(i)]).stdout, range(300))
        )
    assert outputs == [f"{i}\n" for i in range(300)]


def test_cancelling_a_run_kills_the_command(sandbox: Sandbox, run_async):
    marker = f"400{os.getpid()}"

    async def main():
        async with DSecClient() as client:
            sb = await client.connect(sandbox.id)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(sb.commands.run(["sleep", marker]), 0.5)

    run_async(main())
    assert sandbox.commands.run(f"pgrep -f 'sleep {marker}' | grep -vx $$").stdout == ""


def test_asynchronous_and_synchronous_are_the_same(daemon, run_async):
    async def main():
        async with await AsyncSandbox.create(TINY, memory_mb=32) as sb:
            result = await sb.commands.run("cat; exit 5", stdin="in")
            return sb.id, result.stdout, result.exit_code

    sandbox_id, out, code = run_async(main())
    assert (out, code) == ("in", 5)
    assert Sandbox.connect(sandbox_id).phase == "stopped"

"""kill -9 of whatever serves a sandbox costs no sandbox, no command, no byte; nothing runs twice.

Everything is seen through libdsec, whose requests go on by themselves when the daemon is back.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import host
import pytest
from conftest import FULL, TINY
from daemon import Daemon

from libdsec import (
    AsyncSandbox,
    Command,
    DeadlineExceededError,
    DSecClient,
    Sandbox,
    SandboxFailedError,
    SandboxInfo,
    UnavailableError,
)

SLACK = 5
"""A promised time may be exceeded by so much on a busy machine before a test fails."""
ROUNDS = "/root/runs"
UNTIL_TOLD = f"echo run >> {ROUNDS}; while [ ! -e /root/go ]; do sleep 0.05; done; wc -l < {ROUNDS}"
"""Ends when it is told to, and says how often it was run."""


def start_until_told(sandbox: Sandbox, marker: str = "told") -> Command:
    return sandbox.commands.start(["sh", "-c", f"{UNTIL_TOLD}; exit 7", marker])


def tell(sandbox: Sandbox) -> None:
    sandbox.files.write("/root/go", b"")


def info_of(sandbox_id: str) -> SandboxInfo:
    return Sandbox.connect(sandbox_id)._info


def word() -> str:
    """Found among the arguments of processes on the host."""
    return f"told-{random.getrandbits(64):x}"


def in_another_process(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


ATTACH = """
import sys
from libdsec import Sandbox
command = Sandbox.connect(sys.argv[1]).commands.connect(sys.argv[2])
if len(sys.argv) > 3:
    assert command.poll()
    print(command.read("stdout", 0).data.decode())
else:
    print(command.wait(60).stdout, command.wait(60).exit_code)
"""


@pytest.mark.C27
def test_list_exec_and_ttl_go_on_with_100_running_when_the_daemon_is_killed(own: Daemon):
    count = 100 if FULL else 10
    sandboxes = [r.unwrap() for r in Sandbox.create_many(count, TINY, memory_mb=32)]
    running = [start_until_told(sb) for sb in sandboxes]
    mortal = Sandbox.create(TINY, memory_mb=32, ttl=8)
    idle = Sandbox.create(TINY, memory_mb=32, idle_ttl=8)
    own.restart()
    listed = {s.id: s for s in Sandbox.list()}
    for sb in sandboxes:
        assert (listed[sb.id].phase, listed[sb.id].commands_running) == ("running", 1)
        assert sb.commands.run(["echo", sb.id]).stdout == f"{sb.id}\n"
    timed = {mortal.id, idle.id}  # looked at by lists, since asking for one makes it less idle
    assert host.eventually(
        lambda: not timed & {s.id for s in Sandbox.list() if s.alive}, 8 + 2 * SLACK
    )
    assert {s.cause for s in Sandbox.list() if s.id in timed} == {"ttl"}
    for sb in sandboxes:
        tell(sb)
    for command in running:
        result = command.wait(60)
        assert (result.exit_code, result.stdout) == (7, "1\n")
    for sb in sandboxes:
        sb.stop()


@pytest.mark.C27
def test_a_command_is_waited_for_over_ten_kills_and_runs_once(own: Daemon):
    with Sandbox.create(TINY, memory_mb=32) as sb:
        results = []
        waiting = threading.Thread(
            target=lambda: results.append(sb.commands.run(f"{UNTIL_TOLD}; exit 7", timeout=100))
        )
        waiting.start()
        assert host.eventually(lambda: any(c.running for c in sb.commands.list()))
        for _ in range(10):
            own.restart()
            assert sb.commands.run("echo on").stdout == "on\n"
        tell(sb)
        waiting.join()
        assert (results[0].exit_code, results[0].stdout) == (7, "1\n")
        assert sb.files.read(ROUNDS) == b"run\n"


def test_commands_are_attached_to_by_id_from_a_new_client(own: Daemon):
    with Sandbox.create(TINY, memory_mb=32) as sb:
        ended = sb.commands.start("echo before; exit 3", command_id="ended")
        assert ended.wait(60).exit_code == 3
        running = sb.commands.start(f"echo before; {UNTIL_TOLD}", command_id="running")
        own.restart()
        assert in_another_process(ATTACH, sb.id, "ended") == "before\n 3\n"
        assert in_another_process(ATTACH, sb.id, "running", "runs") == "before\n\n"
        tell(sb)
        assert in_another_process(ATTACH, sb.id, "running") == "before\n1\n 0\n"
        assert running.wait(60).exit_code == 0
        assert sorted(c.id for c in sb.commands.list()) == ["ended", "running"]
        # A known id is never run again, by whomever.
        again = sb.commands.start("echo again", command_id="ended")
        assert again.wait(60).stdout == "before\n"


@pytest.mark.C27
def test_results_of_ended_sandboxes_are_kept_over_a_kill(own: Daemon):
    sb = Sandbox.create(TINY, memory_mb=32)
    sb.commands.start("echo kept", command_id="c").wait(60)
    sb.stop()
    own.restart()
    command = Sandbox.connect(sb.id).commands.connect("c")
    assert (command.wait(60).stdout, command.wait(60).exit_code) == ("kept\n", 0)
    assert info_of(sb.id).phase == "stopped"


@pytest.mark.C27
@pytest.mark.parametrize("end", [Daemon.restart, lambda d: (d.leave(), d.start())])
def test_a_sandbox_is_what_it_was_before(own: Daemon, end: Callable[[Daemon], object]):
    with Sandbox.create(
        TINY, memory_mb=48, pids=64, env={"A": "b"}, user="agent", workdir="/tmp", hostname="h",
        labels={"l": "m"},
    ) as sb:  # fmt: skip
        look = "id -u; pwd; hostname; echo $A; cat /tmp/f"
        sb.files.write("/tmp/f", b"written\n")
        expected = (sb.commands.run(look).stdout, sb.info())
        assert expected[0] == "1000\n/tmp\nh\nb\nwritten\n"
        end(own)
        assert (sb.commands.run(look).stdout, sb.info()) == expected
        oom = sb.commands.run(["dd", "if=/dev/zero", "of=/dev/null", "bs=100M", "count=1"])
        assert (oom.exit_code, oom.oom_killed) == (137, True)


@pytest.mark.C3
def test_a_time_limit_holds_while_no_daemon_runs(own: Daemon):
    with Sandbox.create(TINY, memory_mb=32) as sb:
        markers = [f"300{os.getpid()}7", f"300{os.getpid()}8"]
        command = sb.commands.start(
            f"sleep {markers[0]} & setsid sleep {markers[1]} & wait", timeout=2
        )
        assert host.eventually(lambda: all(host.alive(m) for m in markers))
        own.kill()
        assert host.eventually(lambda: not any(host.alive(m) for m in markers), 2 + SLACK)
        own.start()
        result = command.wait(60)
        assert (result.timed_out, result.exit_code) == (True, 137)


@pytest.mark.C5
@pytest.mark.C6
def test_output_is_byte_identical_over_a_kill(own: Daemon):
    with Sandbox.create(TINY, memory_mb=32) as sb:
        script = r"head -c 4096 /dev/urandom | tee /tmp/r; printf 'a\n\n\nb\r\n\r\n' >&2"
        before = sb.commands.run(script)
        late = sb.commands.start(f"{script}; {UNTIL_TOLD} > /dev/null")
        own.restart()
        tell(sb)
        for command in (sb.commands.connect(before.command_id), late):
            result = command.wait(60)
            assert len(result.stdout_bytes) == 4096
            assert result.stderr_bytes == b"a\n\n\nb\r\n\r\n"
            assert not result.stdout_truncated
        assert sb.commands.connect(before.command_id).wait(60).stdout_bytes == before.stdout_bytes
        assert late.wait(60).stdout_bytes == sb.files.read("/tmp/r")


@pytest.mark.C7
def test_cat_without_stdin_returns_at_once_after_a_kill(own: Daemon):
    with Sandbox.create(TINY, memory_mb=32) as sb:
        own.restart()
        r = sb.commands.run("cat", timeout=30)
        assert (r.exit_code, r.stdout, r.timed_out) == (0, "", False)


@pytest.mark.C4
@pytest.mark.parametrize("victims", ["dsecd", "launcher", "launcher twice"])
def test_a_command_is_re_attachable_when_what_serves_it_is_killed(own: Daemon, victims: str):
    with Sandbox.create(TINY, memory_mb=32) as sb:
        command = start_until_told(sb)
        for _ in range(2 if victims.endswith("twice") else 1):
            if victims == "dsecd":
                own.restart()
            else:
                old = own.launcher
                os.kill(old, signal.SIGKILL)
                assert host.eventually(lambda: own.launcher not in (0, old), 30)  # noqa: B023
        assert sb.commands.run("echo on").stdout == "on\n"
        with Sandbox.create(TINY, memory_mb=32) as new:
            assert new.commands.run("echo new").stdout == "new\n"
        tell(sb)
        assert (command.wait(60).exit_code, command.stdout) == (7, "1\n")


@pytest.mark.C4
def test_a_sandbox_survives_its_launcher_and_then_dsecd(own: Daemon):
    """The next launcher holds it before dsecd goes."""
    with Sandbox.create(TINY, memory_mb=32) as sb:
        command = start_until_told(sb)
        old = own.launcher
        os.kill(old, signal.SIGKILL)
        assert host.eventually(lambda: own.launcher not in (0, old), 30)
        with Sandbox.create(TINY, memory_mb=32) as new:  # the next launcher is at work
            new.commands.run("true")
        own.restart()
        tell(sb)
        assert (command.wait(60).exit_code, command.stdout) == (7, "1\n")


@pytest.mark.C4
def test_a_stopped_launcher_is_continued_and_nothing_is_lost(own: Daemon):
    with Sandbox.create(TINY, memory_mb=32) as sb:
        command = start_until_told(sb)
        launcher = own.launcher
        own.kill()
        os.kill(launcher, signal.SIGSTOP)
        own.start()
        assert own.launcher == launcher
        tell(sb)
        assert (command.wait(60).exit_code, command.stdout) == (7, "1\n")


@pytest.mark.C4
def test_launcher_and_dsecd_killed_at_once_leave_no_orphan(own: Daemon):
    marker = word()
    sandboxes = [Sandbox.create(TINY, memory_mb=32) for _ in range(3)]
    commands = [start_until_told(sb, marker) for sb in sandboxes]
    sandboxes[0].commands.start("echo said; exit 4", command_id="ended").wait(60)
    assert host.eventually(lambda: len(host.alive(marker)) == 3)
    launcher = own.launcher
    os.kill(own.pid, signal.SIGSTOP)  # so that it starts no other launcher in between
    os.kill(launcher, signal.SIGKILL)
    own.kill()
    assert host.eventually(lambda: not host.alive(marker), 1 + SLACK), host.alive(marker)
    own.start()
    for sb, command in zip(sandboxes, commands, strict=True):
        assert (info_of(sb.id).phase, info_of(sb.id).cause) == ("failed", "lost")
        with pytest.raises(SandboxFailedError):
            command.wait(60)
    assert sandboxes[0].commands.connect("ended").wait(60).stdout == "said\n"
    with Sandbox.create(TINY) as sb:
        assert sb.commands.run("echo new").stdout == "new\n"


@pytest.mark.C4
@pytest.mark.parametrize("unattended", [False, True])
def test_a_sandbox_whose_aether_is_killed_has_failed_and_leaves_nothing(
    own: Daemon, unattended: bool
):
    marker = word()
    sb = Sandbox.create(TINY, memory_mb=32)
    command = sb.commands.start(["sh", "-c", "setsid sleep 3000 & sleep 3000; true", marker])
    assert host.eventually(lambda: host.alive(marker))
    aether = host.aether_of(host.alive(marker)[0])
    if unattended:
        own.kill()
    os.kill(aether, signal.SIGKILL)
    if unattended:
        assert host.eventually(lambda: not host.alive(marker))
        own.start()
    assert host.eventually(lambda: not info_of(sb.id).alive, 30)
    assert (info_of(sb.id).phase, info_of(sb.id).cause) == ("failed", "backend")
    with pytest.raises(SandboxFailedError):
        command.wait(60)
    # The kernel ends the rest after its first process; the failure is told before all is cleared.
    assert host.eventually(lambda: not host.alive(marker))


def test_a_stream_of_output_is_complete_over_ten_kills(own: Daemon):
    segments = 110
    block = os.urandom((5 << 20 if FULL else 512 << 10) - 4)
    with Sandbox.create(TINY, memory_mb=64) as sb:
        sb.files.write("/tmp/block", block)
        script = f"for i in $(seq -w 1 {segments}); do echo $i; cat /tmp/block; sleep 0.05; done"
        size = segments * (len(block) + 4)
        command = sb.commands.start(script, output_limit=2 * size)
        got, kills, rest = 0, 0, b""
        segment = 1
        restarting: threading.Thread | None = None
        for stream, data in command.stream():
            assert stream == "stdout"
            got += len(data)
            rest += data
            while len(rest) >= len(block) + 4:
                assert rest[:4] == b"%03d\n" % segment
                assert rest[4 : len(block) + 4] == block
                rest = rest[len(block) + 4 :]
                segment += 1
            if kills < 10 and got >= (kills + 1) * size // 11:
                if restarting:
                    restarting.join()
                kills += 1
                restarting = threading.Thread(target=own.restart)
                restarting.start()
        assert restarting is not None
        restarting.join()
        assert (got, kills, rest, segment) == (size, 10, b"", segments + 1)
        assert command.wait(60).exit_code == 0
        assert command.state.stdout_total == size


def test_everything_that_clients_do_goes_on_while_the_daemon_is_killed(own: Daemon):
    """Creates, commands, large reads and writes, lists and stops, over kills at random moments."""
    kills = 50 if FULL else 8
    data = os.urandom(12 << 20)
    done = asyncio.Event()
    rounds = 0

    async def life(client: DSecClient) -> None:
        nonlocal rounds
        while not done.is_set():
            async with await AsyncSandbox.create(TINY, memory_mb=64, client=client) as sb:
                once = await sb.commands.run(f"echo run >> {ROUNDS}; cat {ROUNDS}")
                assert once.stdout == "run\n"
                await sb.files.write("/tmp/data", data)
                assert await sb.files.read("/tmp/data") == data
                large = await sb.commands.run("seq -w 1 300000")
                assert large.stdout.splitlines() == [f"{i:06}" for i in range(1, 300_001)]
                listed = [s for s in await client.list_sandboxes() if s.id == sb.id]
                assert [s.phase for s in listed] == ["running"]
            rounds += 1

    async def main() -> None:
        async with DSecClient() as client:
            lives = [asyncio.create_task(life(client)) for _ in range(4)]
            chosen = random.Random(7)
            for _ in range(kills):
                await asyncio.sleep(chosen.uniform(0, 1.5))
                await asyncio.to_thread(own.restart)
                assert not [task for task in lives if task.done() and task.exception()]
            done.set()
            await asyncio.gather(*lives)

    asyncio.run(asyncio.wait_for(main(), 550 if FULL else 110))
    assert rounds >= 4
    assert not [s for s in Sandbox.list() if s.alive]


CREATE = """
import asyncio, sys
from libdsec import AsyncSandbox, DSecClient

async def main():
    async with DSecClient(lease_seconds=float(sys.argv[2])) as client:
        bound = await AsyncSandbox.create(sys.argv[1], client=client)
        kept = await AsyncSandbox.create(sys.argv[1], detached=True, client=client)
        changed = await AsyncSandbox.create(sys.argv[1], client=client)
        await changed.detach()
        await bound.commands.start("sleep 3000")
        print(bound.id, kept.id, changed.id, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""
LEASE = 2.0


@pytest.fixture
def creator(own: Daemon):
    """A client process that has created three sandboxes: bound, detached, detached afterwards."""
    process = subprocess.Popen(
        [sys.executable, "-c", CREATE, TINY, str(LEASE)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    ids = process.stdout.readline().split()
    assert len(ids) == 3
    yield process, ids
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.mark.C29
def test_sandboxes_of_a_killed_client_end_with_its_lease_unless_detached(own: Daemon, creator):
    process, (bound, *detached) = creator
    # Its connection keeps the lease.
    assert not host.eventually(lambda: not info_of(bound).alive, 2 * LEASE)
    process.kill()
    killed = time.monotonic()
    assert host.eventually(lambda: not info_of(bound).alive, LEASE + SLACK)
    assert time.monotonic() - killed >= LEASE - 0.5
    info = info_of(bound)
    assert (info.phase, info.cause) == ("stopped", "ttl")
    assert "lease" in info.cause_detail
    assert [info_of(i).phase for i in detached] == ["running", "running"]
    assert [info_of(i).detached for i in detached] == [True, True]
    for sandbox_id in detached:
        sb = Sandbox.connect(sandbox_id)
        assert sb.commands.run("echo on").stdout == "on\n"
        sb.stop()


@pytest.mark.C29
def test_a_lease_outlives_the_daemon_and_counts_anew(own: Daemon, creator):
    process, (bound, *detached) = creator
    own.restart()
    # The client has come back to it.
    assert not host.eventually(lambda: not info_of(bound).alive, 2 * LEASE)
    own.kill()
    process.kill()  # its sandboxes have nobody while no daemon runs
    own.start()
    assert host.eventually(lambda: not info_of(bound).alive, LEASE + SLACK)
    assert info_of(bound).cause == "ttl"
    for sandbox_id in detached:
        Sandbox.connect(sandbox_id).stop()


def test_what_a_client_gave_up_while_the_daemon_said_nothing_is_not_left_behind(own: Daemon):
    os.kill(own.pid, signal.SIGSTOP)
    try:
        for _ in range(3):
            with pytest.raises((DeadlineExceededError, UnavailableError)):
                Sandbox.create(TINY, timeout=1)
    finally:
        os.kill(own.pid, signal.SIGCONT)
    with Sandbox.create(TINY) as sandbox:  # by now it has read all that came before
        assert host.eventually(
            lambda: [s.id for s in Sandbox.list() if s.alive] == [sandbox.id], 10 + SLACK
        )


def test_what_a_client_gave_up_while_the_daemon_was_killed_is_not_left_behind(own: Daemon):
    async def main() -> list[object]:
        async with DSecClient() as client:
            creating = [
                asyncio.create_task(AsyncSandbox.create(TINY, timeout=0.5, client=client))
                for _ in range(40)
            ]
            # Then the others are on their way.
            await asyncio.wait(creating, return_when=asyncio.FIRST_COMPLETED)
            own.kill()
            made = await asyncio.gather(*creating, return_exceptions=True)
            await asyncio.to_thread(own.start)
            ids = {s.id for s in made if isinstance(s, AsyncSandbox)}
            living = set()
            deadline = time.monotonic() + 10 + SLACK
            while time.monotonic() < deadline:
                living = {s.id for s in await client.list_sandboxes() if s.alive}
                if living == ids:
                    break
                await asyncio.sleep(0.1)
            assert living == ids
            return [m for m in made if isinstance(m, Exception)]

    assert asyncio.run(main()), "no creation was given up"


def test_a_command_with_a_time_limit_returns_though_the_daemon_says_nothing(own: Daemon):
    with Sandbox.create(TINY) as sandbox:
        os.kill(own.pid, signal.SIGSTOP)
        began = time.monotonic()
        try:
            with pytest.raises(DeadlineExceededError):
                sandbox.commands.run("sleep 1", timeout=2)
        finally:
            os.kill(own.pid, signal.SIGCONT)
        assert time.monotonic() - began < 2 + 13 + SLACK

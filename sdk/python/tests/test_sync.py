"""The synchronous interface: the same names, from any thread, after a fork, under Ctrl-C, and at
exit.
"""

from __future__ import annotations

import inspect
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from fake_server import FakeServer, eventually, pattern
from libdsec import (
    AsyncCommand,
    AsyncCommands,
    AsyncFiles,
    AsyncSandbox,
    Command,
    CommandFailed,
    Commands,
    DeadlineExceededError,
    Files,
    NotFoundError,
    RequestCancelledError,
    Sandbox,
    UnavailableError,
)
from libdsec._loop import loop_thread


@pytest.mark.parametrize(
    ("sync", "asynchronous"),
    [
        (Sandbox, AsyncSandbox),
        (Command, AsyncCommand),
        (Commands, AsyncCommands),
        (Files, AsyncFiles),
    ],
)
def test_both_interfaces_have_the_same_names_and_arguments(sync, asynchronous):
    def interface(cls: type) -> dict[str, list[str]]:
        names = [n for n in vars(cls) if not n.startswith("_")]
        return {
            n: [p for p in inspect.signature(member).parameters if p != "client"]
            if callable(member := getattr(cls, n))
            else ["property"]
            for n in names
        }

    assert interface(sync) == interface(asynchronous)


def test_the_readme_example(server: FakeServer):
    with Sandbox.create(
        "debian-python:12", workspace="w:1", toolkits=["pytest:8"], cpu=1, memory_mb=512
    ) as sb:
        r = sb.commands.run("echo 42")
        assert (r.stdout, r.stderr, r.exit_code) == ("42\n", "", 0)
        assert (r.timed_out, r.oom_killed, r.stdout_truncated) == (False, False, False)
        sb.files.write("/root/a.txt", b"...")
        assert sb.files.read("/root/a.txt") == b"..."
        assert sb.phase == "running"
        assert sb.info().toolkits == ("pytest:8",)
    assert sb.phase == "stopped"
    assert [s.id for s in Sandbox.list()] == [sb.id]
    assert Sandbox.connect(sb.id).phase == "stopped"


def test_commands_and_files(server: FakeServer):
    with Sandbox.create("tiny:1") as sb:
        with pytest.raises(CommandFailed):
            sb.commands.run("exit 3", check=True)
        assert sb.run_shell("exit 3").exit_code == 3
        command = sb.commands.start("hang", command_id="mine")
        assert command.poll()
        with pytest.raises(DeadlineExceededError):
            command.wait(0.05)
        assert sb.commands.get("mine").running
        assert command.kill().exit_code == 137
        assert command.result is not None
        assert [c.id for c in sb.commands.list()][-1] == "mine"
        assert list(sb.commands.start("echo hi").stream()) == [("stdout", b"hi\n")]
        sb.files.write_text("/t", "text")
        assert sb.files.read_text("/t") == "text"
        sb.files.write("/f", pattern(9_000_000))
        assert sb.files.read("/f") == pattern(9_000_000)


def test_many_threads_share_one_connection(server: FakeServer):
    with Sandbox.create("tiny:1") as sb, ThreadPoolExecutor(32) as threads:
        outputs = list(threads.map(lambda i: sb.commands.run(["echo", str(i)]).stdout, range(500)))
    assert outputs == [f"{i}\n" for i in range(500)]
    assert server.connections == 1


def test_sandboxes_made_by_many_threads_at_once(server: FakeServer):
    def life(i: int) -> str:
        with Sandbox.create("tiny:1", labels={"i": str(i)}) as sb:
            return sb.commands.run(["echo", str(i)]).stdout

    with ThreadPoolExecutor(32) as threads:
        outputs = list(threads.map(life, range(64)))
    assert outputs == [f"{i}\n" for i in range(64)]
    assert server.connections == 1
    assert {s["phase"] for s in server.sandboxes.values()} == {"stopped"}


def test_a_forked_child_uses_a_connection_of_its_own(server: FakeServer):
    with Sandbox.create("tiny:1") as sb:
        hanging = sb.commands.start("hang")

        def child(results):
            results.put(sb.commands.run("echo child").stdout)
            results.put(hanging.poll())

        context = multiprocessing.get_context("fork")
        results = context.SimpleQueue()
        process = context.Process(target=child, args=(results,))
        process.start()
        process.join(20)
        assert process.exitcode == 0
        assert (results.get(), results.get()) == ("child\n", True)
        assert sb.commands.run("echo parent").stdout == "parent\n"
    assert server.connections == 2


def test_a_forked_child_does_not_hold_its_parents_connection_open(server: FakeServer):
    with Sandbox.create("tiny:1"):
        pid = os.fork()
        if pid == 0:
            time.sleep(30)  # ended below
            os._exit(0)
        try:
            loop_thread.close()
            assert eventually(lambda: not server._open, 10)
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def test_a_fork_while_other_threads_call(server: FakeServer):
    stop = threading.Event()
    with Sandbox.create("tiny:1") as sb:

        def work() -> None:
            while not stop.is_set():
                assert sb.commands.run("echo x").stdout == "x\n"

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        codes = []
        for _ in range(10):
            pid = os.fork()
            if pid == 0:
                try:
                    os._exit(0 if sb.commands.run("echo y").stdout == "y\n" else 1)
                finally:
                    os._exit(2)
            codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        stop.set()
        for thread in threads:
            thread.join()
    assert codes == [0] * 10


def test_ctrl_c_kills_the_command(server: FakeServer):
    with Sandbox.create("tiny:1") as sb:

        def interrupt() -> None:
            eventually(lambda: server.starts)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            sb.commands.run("hang", timeout=60)
        command = sb.commands.get(server.starts[0])
        assert eventually(lambda: not command.poll(), 10)
        assert command.state.exit_code == 137


def test_errors_come_through(server: FakeServer, monkeypatch):
    with pytest.raises(NotFoundError):
        Sandbox.connect("e0-none")
    monkeypatch.setenv("DSEC_URL", "127.0.0.1:1")
    with pytest.raises(UnavailableError):
        Sandbox.list()


def test_closing_the_loop_ends_what_waits_on_other_threads(server: FakeServer):
    sb = Sandbox.create("tiny:1")
    with ThreadPoolExecutor(4) as threads:
        waiting = [threads.submit(sb.commands.run, "hang", timeout=60) for _ in range(4)]
        assert eventually(lambda: len(server.starts) == 4)
        loop_thread.close()
        for call in waiting:
            with pytest.raises(RequestCancelledError):
                call.result(20)
    assert sb.commands.run("echo anew").stdout == "anew\n"


def test_calling_it_from_its_own_event_loop_is_an_error_not_a_deadlock(server: FakeServer):
    async def call() -> None:
        Sandbox.list()

    with pytest.raises(RuntimeError, match="own event loop"):
        loop_thread.run(call)


def test_it_works_inside_another_event_loop(server: FakeServer):
    import asyncio

    async def main() -> str:
        with Sandbox.create("tiny:1") as sb:
            return sb.commands.run("echo in").stdout

    assert asyncio.run(main()) == "in\n"


def test_a_process_ends_promptly_and_silently_with_things_left_open(server: FakeServer):
    script = (
        "from libdsec import Sandbox\n"
        "sb = Sandbox.create('tiny:1')\n"
        "command = sb.commands.start('hang')\n"
        "stream = sb.commands.start('random').stream()\n"
        "next(stream)\n"
        "print(sb.commands.run('echo done').stdout, end='')\n"
    )
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", script], capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    assert time.monotonic() - started < 15
    assert not server._open


def test_a_destructor_that_runs_at_exit_gets_an_error_and_does_not_hang(server: FakeServer):
    script = (
        "from libdsec import Sandbox\n"
        "class Owner:\n"
        "    def __init__(self):\n"
        "        self.sandbox = Sandbox.create('tiny:1')\n"
        "    def __del__(self):\n"
        "        self.sandbox.stop()\n"
        "owner = Owner()\n"
        "owner.me = owner\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0
    assert "the interpreter is exiting" in done.stderr

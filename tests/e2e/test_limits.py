"""Time limits of sandboxes, admission, and what happens to clients when the daemon goes."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
from conftest import TINY
from host import eventually

from libdsec import InvalidArgumentError, NotFoundError, Sandbox, UnavailableError


def ended(sandbox_id: str, seconds: float):
    """Waits for its end by listing: asking for the one sandbox could count as using it."""

    def info():
        (found,) = [s for s in Sandbox.list() if s.id == sandbox_id]
        return found

    assert eventually(lambda: not info().alive, seconds), f"{sandbox_id} is still {info().phase}"
    return info()


def test_an_idle_sandbox_ends_after_its_idle_time(daemon):
    started = time.monotonic()
    sb = Sandbox.create(TINY, idle_ttl=1)
    info = ended(sb.id, 10)
    assert (info.phase, info.cause) == ("stopped", "ttl")
    assert time.monotonic() - started >= 1


def test_requests_and_running_commands_keep_it_from_being_idle(daemon):
    with Sandbox.create(TINY, idle_ttl=1) as sb:
        for _ in range(4):
            time.sleep(0.5)
            assert sb.commands.run("true").exit_code == 0
        assert sb.commands.run("sleep 2.5; echo still").stdout == "still\n"
        assert sb.info().phase == "running"


def test_an_absolute_limit_ends_it_in_the_midst_of_work(daemon):
    sb = Sandbox.create(TINY, ttl=2)
    sb.commands.start("sleep 60")
    started = time.monotonic()
    info = ended(sb.id, 12)
    assert info.cause == "ttl"
    assert time.monotonic() - started >= 1


def test_more_than_the_machine_can_ever_give_is_refused_naming_the_resource(daemon):
    started = time.monotonic()
    with pytest.raises(InvalidArgumentError, match="memory") as caught:
        Sandbox.create(TINY, memory_mb=100_000_000, timeout=1)
    assert not caught.value.retryable
    assert time.monotonic() - started < 1 + 5
    assert [s for s in Sandbox.list() if s.alive] == []


@pytest.mark.parametrize("arguments", [{"memory_mb": 1}, {"pids": 1}, {"hostname": "Not_A_Name"}])
def test_limits_under_which_nothing_starts_are_refused(daemon, arguments):
    with pytest.raises(InvalidArgumentError):
        Sandbox.create(TINY, **arguments)


def test_a_sandbox_that_does_not_exist_is_not_found(daemon):
    with pytest.raises(NotFoundError, match="e0-aaaaaaaaaaaaaaaa"):
        Sandbox.connect("e0-aaaaaaaaaaaaaaaa")


def test_many_large_reads_at_once_come_through_in_bounded_memory(daemon):
    size, readers = 8 << 20, 64
    with Sandbox.create(TINY, memory_mb=64) as sb:
        content = os.urandom(size)
        sb.files.write("/root/big", content)
        before = resident(daemon.pid)
        results: list[object] = [None] * readers

        def read(i: int) -> None:
            try:
                results[i] = sb.files.read("/root/big") == content
            except Exception as error:
                results[i] = error

        threads = [threading.Thread(target=read, args=(i,)) for i in range(readers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == [True] * readers
        assert peak(daemon.pid) - before < 256 << 20


def memory_line(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) << 10
    raise AssertionError(f"no {name}")


def resident(pid: int) -> int:
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak counts from here
    return memory_line(pid, "VmRSS")


def peak(pid: int) -> int:
    return memory_line(pid, "VmHWM")


def test_a_daemon_that_is_stopped_with_all_takes_its_sandboxes_along_and_says_so(daemon):
    """Last in this module: it restarts the daemon."""
    sb = Sandbox.create(TINY)
    command = sb.commands.start("sleep 60")
    daemon.stop()
    with pytest.raises(UnavailableError, match="not running"):
        command.wait(5)
    daemon.start()
    with Sandbox.create(TINY) as other:
        assert other.commands.run("echo again").stdout == "again\n"

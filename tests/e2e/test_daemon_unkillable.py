"""What cannot be killed: a frozen process stands for one that waits for a disk."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import TINY
from daemon import Daemon, binary
from host import alive, eventually

from libdsec import Sandbox

ONE_PROCESS = "it is about one process and its state directory"


@pytest.fixture
def ice() -> Iterator[Path]:
    """A group whose members get no signal, not even SIGKILL, until it is thawed: as a process in an
    uninterruptible call."""
    freezer = Path("/sys/fs/cgroup/freezer")
    if not (freezer / "tasks").exists():
        pytest.skip("no version 1 freezer")
    group = freezer / f"dsec-e2e-{os.getpid()}"
    group.mkdir()
    try:
        yield group
    finally:
        thaw(group)
        eventually(lambda: not (group / "tasks").read_text())
        group.rmdir()


def freeze(group: Path, marker: str) -> None:
    assert eventually(lambda: alive(marker))  # the shell has become it
    for pid in alive(marker):
        (group / "cgroup.procs").write_text(pid)
    (group / "freezer.state").write_text("FROZEN")
    assert eventually(lambda: (group / "freezer.state").read_text() == "FROZEN\n")


def thaw(group: Path) -> None:
    (group / "freezer.state").write_text("THAWED")


def test_what_cannot_be_killed_holds_up_nobody_and_is_ended_later(own: Daemon, ice: Path):
    stuck, *others = [Sandbox.create(TINY, memory_mb=32) for _ in range(4)]
    stuck.commands.start("sleep 31415")
    freeze(ice, "31415")
    waiting = threading.Thread(target=stuck.stop)
    waiting.start()
    started = time.monotonic()
    for sb in others:
        sb.stop()
    assert time.monotonic() - started < 5
    waiting.join()
    info = next(s for s in Sandbox.list() if s.id == stuck.id)
    assert (info.phase, info.cause) == ("failed", "killed")
    thaw(ice)
    assert eventually(lambda: not own.live_leaks(), 30), own.live_leaks()


def test_stopping_it_leaves_only_what_cannot_be_killed(own: Daemon, ice: Path):
    sandboxes = [Sandbox.create(TINY, memory_mb=32) for _ in range(4)]
    sandboxes[0].commands.start("sleep 31416")
    sandboxes[1].commands.start("sleep 31417")
    freeze(ice, "31416")
    with pytest.raises(AssertionError, match="dsecd ended with"):  # it says what it leaves
        own.stop()
    assert "giving_up" not in own.tail(200)
    assert alive("31416")
    assert not alive("31417")
    thaw(ice)
    own.start()
    assert {s.phase for s in Sandbox.list()} == {"stopped", "failed"}


def test_stop_all_and_purge_fail_while_something_cannot_be_killed(own: Daemon, ice: Path):
    """A daemon that could not end it has given up the sandbox, but nobody may take it for gone."""
    Sandbox.create(TINY, memory_mb=32).commands.start("sleep 31418")
    freeze(ice, "31418")
    for arguments in (["stop", "--all"], ["purge", "--yes"]):
        said = own.dsecd(*arguments, code=75)
        assert own.instance in said  # its control group
        assert not own.running
        assert alive("31418")
        assert (own.state / "worker.db").exists()
    thaw(ice)
    own.dsecd("purge", "--yes")
    assert not alive("31418")
    assert not own.state.exists()


@pytest.mark.parametrize("second", [["stop"], ["stop", "--all"]])
def test_two_that_stop_at_once_do_not_hit_each_other(own: Daemon, ice: Path, second: list[str]):
    Sandbox.create(TINY, memory_mb=32).commands.start("sleep 31419")
    freeze(ice, "31419")
    own.kill()
    first = subprocess.Popen(
        [binary(), "stop", "--all", "--config", own.config, "--state", own.state],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert eventually(lambda: f" {first.pid} " in Path("/proc/locks").read_text())
    thawing = threading.Timer(1, thaw, [ice])
    thawing.start()
    said = own.dsecd(*second)
    assert first.wait(30) == 0
    assert "no dsecd holds" in said
    thawing.join()
    assert not alive("31419")

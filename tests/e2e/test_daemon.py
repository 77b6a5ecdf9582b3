"""Starting, stopping and killing the daemon itself."""

from __future__ import annotations

import os
import stat
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import TINY, serve
from daemon import Daemon, binary
from host import alive, eventually

from libdsec import DSecError, Sandbox
from libdsec._loop import loop_thread


@pytest.fixture
def own(request: pytest.FixtureRequest, tiny_tree: Path) -> Iterator[Daemon]:
    """A daemon for one test, which may do with it what it likes."""
    name = f"own-{abs(hash(request.node.name)) % 10000}"
    yield from serve(name, lambda d: d.image_import(TINY, tiny_tree, "base"))


@pytest.mark.parametrize("pause", [0, 0.05, 0.3])
def test_a_daemon_that_is_stopped_soon_after_its_start_leaves_nothing(own: Daemon, pause: float):
    time.sleep(pause)


def test_it_starts_and_stops_again_and_again(own: Daemon):
    keys = set()
    for _ in range(3):
        with Sandbox.create(TINY) as sb:
            assert sb.commands.run("echo up").stdout == "up\n"
        keys.add((own.state / "api-key").read_text())
        own.stop()
        assert not (own.state / "url").exists()
        own.start()
    assert len(keys) == 1


def test_stopping_it_ends_what_runs(own: Daemon):
    sandboxes = [Sandbox.create(TINY, memory_mb=32) for _ in range(5)]
    for sb in sandboxes:
        sb.commands.start("setsid sleep 3000 & sleep 3000")
    started = time.monotonic()
    own.stop()
    assert time.monotonic() - started < 30
    own.start()
    assert {(s.id, s.phase) for s in Sandbox.list()} == {(s.id, "stopped") for s in sandboxes}


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


def test_what_a_killed_daemon_leaves_is_taken_up_or_cleared_away(own: Daemon):
    sandboxes = [Sandbox.create(TINY, memory_mb=32) for _ in range(3)]
    for sb in sandboxes:
        sb.commands.start("sleep 3000")
    own.kill()
    loop_thread.close()
    own.start()
    for info in Sandbox.list():
        if info.alive:
            assert Sandbox.connect(info.id).commands.run("echo on").stdout == "on\n"
        else:
            assert (info.phase, info.cause) == ("failed", "lost")
    with Sandbox.create(TINY) as sb:
        assert sb.commands.run("echo new").stdout == "new\n"


def test_the_key_and_the_address_are_the_owners_only(own: Daemon):
    for name in ("api-key", "url"):
        assert stat.S_IMODE((own.state / name).stat().st_mode) == 0o600
    assert stat.S_IMODE(own.state.stat().st_mode) == 0o700


def test_health_is_told_without_a_key(own: Daemon):
    url = (own.state / "url").read_text().strip().replace("ws://", "http://")
    with urllib.request.urlopen(f"{url}/healthz", timeout=10) as answer:
        assert answer.status == 200


def test_a_state_directory_serves_one_daemon_only(own: Daemon):
    done = subprocess.run(
        [binary(), "serve", "--state", own.state, "--instance", own.instance, "--port", "0"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 73
    assert "in use" in done.stderr
    assert str(own.pid) in done.stderr
    with Sandbox.create(TINY) as sb:
        assert sb.commands.run("true").exit_code == 0


def test_two_instances_do_not_meet(own: Daemon, tiny_tree: Path):
    mine = Sandbox.create(TINY, memory_mb=32)
    other = Daemon("other")
    try:
        other.image_import(TINY, tiny_tree, "base")
        other.start()
        os.environ["DSEC_STATE"] = str(other.state)
        assert Sandbox.list() == []
        with pytest.raises(DSecError):
            Sandbox.connect(mine.id)
        with Sandbox.create(TINY, memory_mb=32) as theirs:
            assert theirs.commands.run("echo other").stdout == "other\n"
        other.stop()
    finally:
        os.environ["DSEC_STATE"] = str(own.state)
        other.stop()
        other.remove()
    assert mine.commands.run("echo mine").stdout == "mine\n"
    mine.stop()

"""Starting, stopping and killing the daemon itself."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import socket
import sqlite3
import stat
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import TINY
from daemon import ROOT, Daemon, binary
from host import alive, eventually
from strangers import join, key_of
from websockets.exceptions import ConnectionClosed

from libdsec import DSecError, Sandbox
from libdsec._loop import loop_thread

ONE_PROCESS = "it is about one process and its state directory"


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


def test_an_upgrade_keeps_what_runs(own: Daemon):
    """`dsecd stop`, another binary, `dsecd serve`."""
    with Sandbox.create(TINY, memory_mb=32) as sb:
        script = "while [ ! -e /root/go ]; do sleep 0.05; done; echo went"
        command = sb.commands.start(script)
        said = own.dsecd("stop")
        assert "stopped dsecd; 1 sandbox runs on" in said
        assert f"dsecd stop --all --state '{own.state}'" in said
        assert not own.running
        assert command.state.state == "running"
        own.start()
        assert sb.info().phase == "running"
        sb.files.write("/root/go", b"")
        assert (command.wait(60).exit_code, command.stdout) == (0, "went\n")


@pytest.mark.parametrize("wrong", ["port", "url", "store", "instance"])
def test_a_start_that_fails_ends_nothing_that_runs(own: Daemon, wrong: str):
    with Sandbox.create(TINY, memory_mb=32) as sb:
        command = sb.commands.start("while [ ! -e /root/go ]; do sleep 0.05; done; echo went")
        own.kill()
        loop_thread.close()  # its connections keep the port
        url, store = own.state / "url", own.state / "worker.db"
        with contextlib.ExitStack() as undo:
            if wrong == "port":
                taken = undo.enter_context(socket.socket())
                taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                taken.bind(("127.0.0.1", own.port))
                taken.listen()
            elif wrong == "url":
                url.unlink()
                (url / "in the way").mkdir(parents=True)
                undo.callback(shutil.rmtree, url)
            elif wrong == "store":
                for file in own.state.glob("worker.db*"):
                    undo.callback(file.write_bytes, file.read_bytes())
                    file.unlink()
                store.write_bytes(b"rubbish" * 1000)
            else:
                mine, own.instance = own.instance, "another"
                undo.callback(setattr, own, "instance", mine)
            with pytest.raises(AssertionError, match="dsecd ended with"):
                own.start()
        own.start()
        sb.files.write("/root/go", b"")
        assert (command.wait(60).exit_code, command.stdout) == (0, "went\n")


def test_clients_wait_for_the_next_daemon(own: Daemon):
    with Sandbox.create(TINY, memory_mb=32) as sb:
        own.leave()
        starting = threading.Timer(1, own.start)
        starting.start()
        assert sb.commands.run("echo waited").stdout == "waited\n"
        starting.join()


@pytest.mark.parametrize("how", [Daemon.leave, Daemon.stop])
def test_clients_are_told_that_it_goes(own: Daemon, how: Callable[[Daemon], None]):
    with join(own, key_of(own)) as wire:
        how(own)
        with pytest.raises(ConnectionClosed) as closed:
            wire.recv(5)
        # Not "done" (1000): whoever is told so comes back.
        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1001, "dsecd is stopping")


def test_ctrl_c_leaves_the_sandboxes_and_says_so(own: Daemon):
    sb = Sandbox.create(TINY, memory_mb=32)
    own.leave(signal.SIGINT)
    assert "dsecd: stopped; 1 sandbox runs on: `dsecd serve" in own.tail(3)
    own.start()
    sb.stop()
    own.leave(signal.SIGINT)
    assert "dsecd: stopped; no sandbox runs on" in own.tail(3)


@pytest.mark.parametrize("how", [Daemon.leave, Daemon.kill])
def test_stop_all_ends_what_runs_on_without_a_daemon(own: Daemon, how: Callable[[Daemon], None]):
    marker = f"3000{os.getpid()}"
    for _ in range(3):
        Sandbox.create(TINY, memory_mb=32).commands.start(f"setsid sleep {marker} & wait")
    assert eventually(lambda: len(alive(marker)) == 3)
    how(own)
    said = own.dsecd("stop")
    assert f"no dsecd holds '{own.state}'; 3 sandboxes run on" in said
    said = own.dsecd("stop", "--all")
    assert "ended 3 sandboxes" in said
    assert not (own.state / "url").exists()
    assert not alive(marker)
    assert not own.launcher
    assert eventually(lambda: not own.leaks()), own.leaks()
    assert "no sandbox runs on" in own.dsecd("stop")
    own.start()
    assert {(s.phase, s.cause) for s in Sandbox.list()} == {("stopped", "killed")}


def spoil_record(own: Daemon) -> None:
    with contextlib.closing(sqlite3.connect(own.state / "worker.db")) as db, db:
        db.execute("UPDATE sandboxes SET phase = 'asleep'")


def spoil_store(own: Daemon) -> None:
    for file in own.state.glob("worker.db*"):
        file.unlink()
    (own.state / "worker.db").write_bytes(b"rubbish" * 1000)


@pytest.mark.parametrize("spoil", [spoil_record, spoil_store])
@pytest.mark.parametrize("arguments", [["stop", "--all"], ["purge", "--yes"]])
def test_records_that_cannot_be_read_keep_nothing_alive(
    own: Daemon, spoil: Callable[[Daemon], None], arguments: list[str]
):
    marker = f"3002{os.getpid()}"
    sb = Sandbox.create(TINY, memory_mb=32)
    sb.commands.start(f"sleep {marker}")
    assert eventually(lambda: alive(marker))
    own.kill()
    spoil(own)
    said = own.dsecd(*arguments, code=74 if arguments[0] == "stop" else 0)
    assert not alive(marker)
    assert not own.launcher
    if arguments[0] == "stop":
        assert "all sandboxes have ended, but the records do not say so" in said
        assert (sb.id if spoil is spoil_record else "worker.db") in said
        assert eventually(lambda: not own.leaks()), own.leaks()
        own.dsecd("purge", "--yes")
    assert not own.state.exists()


def test_stop_all_asks_no_launcher(own: Daemon):
    marker = f"3001{os.getpid()}"
    Sandbox.create(TINY, memory_mb=32).commands.start(f"sleep {marker}")
    own.leave()
    os.kill(own.launcher, signal.SIGSTOP)
    began = time.monotonic()
    assert "ended 1 sandboxes" in own.dsecd("stop", "--all")
    assert time.monotonic() - began < 10
    assert not alive(marker)
    assert not own.launcher
    assert eventually(lambda: not own.leaks()), own.leaks()


def test_stop_all_of_a_running_daemon(own: Daemon):
    Sandbox.create(TINY, memory_mb=32).commands.start("sleep 3000")
    assert own.dsecd("stop", "--all") == "stopped dsecd and its sandboxes\n"
    assert not own.running
    assert eventually(lambda: not own.leaks()), own.leaks()
    assert not (own.state / "url").exists()


def test_stop_where_nothing_ever_was(tmp_path: Path):
    for arguments in (["stop"], ["stop", "--all"]):
        done = subprocess.run(
            [binary(), *arguments, "--state", tmp_path / "none"], capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert "no dsecd holds" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_purge_ends_everything_and_deletes_the_state_directory(own: Daemon):
    marker = f"3001{os.getpid()}"
    Sandbox.create(TINY, memory_mb=32).commands.start(f"sleep {marker}")
    assert eventually(lambda: alive(marker))
    said = own.dsecd("purge", code=64)  # not without a confirmation
    assert "--yes" in said
    assert own.running
    said = own.dsecd("purge", "--yes")
    for name in ("images", "worker.db", "api-key", f"deleted '{own.state}'"):
        assert name in said
    assert not own.state.exists()
    assert not alive(marker)


def test_purge_keeps_what_is_not_dsecds(own: Daemon):
    (own.state / "notes.txt").write_text("mine")
    own.kill()
    said = own.dsecd("purge", "--yes")
    assert "kept, not dsecd's: notes.txt" in said
    assert [f.name for f in own.state.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("content", [[], ["instance"], ["images", "worker.db"]])
def test_purge_refuses_what_is_no_state_directory(tmp_path: Path, content: list[str]):
    for name in content:
        (tmp_path / name).write_text("x\n")
    done = subprocess.run(
        [binary(), "purge", "--yes", "--state", tmp_path], capture_output=True, text=True
    )
    assert done.returncode == 64
    assert "no state directory" in done.stderr
    assert sorted(f.name for f in tmp_path.iterdir()) == sorted(content)


def test_a_purge_that_failed_can_be_repeated(own: Daemon):
    own.stop()
    busy = own.state / "trash"
    subprocess.run(["mount", "--bind", busy, busy], check=True)
    try:
        assert "cannot remove directory 'trash'" in own.dsecd("purge", "--yes", code=70)
    finally:
        subprocess.run(["umount", busy], check=True)
    own.dsecd("purge", "--yes")
    assert not own.state.exists()


@pytest.mark.parametrize("left", [["instance", "lock"], ["instance", "lock", "worker.db"]])
def test_a_purge_that_was_killed_can_be_repeated(own: Daemon, left: list[str]):
    own.stop()
    for entry in own.state.iterdir():
        if entry.name not in left:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    own.dsecd("purge", "--yes")
    assert not own.state.exists()


def test_the_service_manager_is_told_when_it_is_ready(tiny_tree: Path, tmp_path: Path):
    """sd_notify(3), as a unit with Type=notify needs it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        own = Daemon("notify", environment={"NOTIFY_SOCKET": str(tmp_path / "notify")})
        try:
            own.start()
            assert manager.recv(100) == b"READY=1"
            own.leave()
            assert manager.recv(100) == b"STOPPING=1"
        finally:
            own.stop()
            own.remove()


def test_the_unit_is_one_that_systemd_accepts(tmp_path: Path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze")
    for unit in (ROOT / "config").glob("*.service"):
        text = unit.read_text().replace("/usr/local/bin/dsecd", str(binary()))
        (tmp_path / unit.name).write_text(text)
    for unit in (ROOT / "config").glob("*.slice"):
        shutil.copy(unit, tmp_path)
    done = subprocess.run(
        ["systemd-analyze", "verify", *tmp_path.iterdir()], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_start_says_how_many_sandboxes_the_open_files_suffice_for(own: Daemon):
    own.wrapper = ["prlimit", "--nofile=1024:4096"]
    own.restart()
    (line,) = [json.loads(s) for s in own.tail(50).splitlines() if '"open_files"' in s][-1:]
    assert (line["level"], line["limit"], line["max_sandboxes"]) == ("warn", 4096, 4096)
    assert 500 < line["idle_sandboxes"] < 1024
    assert resource.prlimit(own.pid, resource.RLIMIT_NOFILE) == (4096, 4096)


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


def test_an_empty_state_directory_is_none(own: Daemon) -> None:
    """A variable that a script forgot to set must not purge another directory."""
    for subcommand in (["stop", "--all"], ["purge", "--yes"], ["serve"]):
        done = subprocess.run(
            [binary(), *subcommand, "--state", ""],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
            env=own.environment,
        )  # fmt: skip
        assert done.returncode == 64
        assert "--state is empty" in done.stderr
    assert own.running

"""A disk that one sandbox has filled: the others hear of it by name, nothing is lost in silence, and
dsecd comes back to what runs.

The state directory is on a small file system of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import serve
from daemon import Daemon
from host import alive, eventually
from images import TINY

from libdsec import InternalError, IoError, Sandbox

ONE_PROCESS = "it fills the disk of one state directory"

SIZE_MB, INODES = 48, 4000
FILL = "dd if=/dev/zero of=/root/fill bs=1M; dd if=/dev/zero of=/root/rest bs=512"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    options = f"size={SIZE_MB}m,nr_inodes={INODES},mode=700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", tmp_path], check=True)
    try:
        yield tmp_path
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)


@pytest.fixture
def small(disk: Path, tiny_tree: Path) -> Iterator[Daemon]:
    """A daemon whose disk is soon full."""
    yield from serve("disk", lambda d: d.image_import(TINY, tiny_tree, "base"), place=disk)


@pytest.fixture
def sb(small: Daemon) -> Iterator[Sandbox]:
    """A sandbox whose command log has room in its block for a few more commands."""
    with Sandbox.create(TINY, memory_mb=64) as sandbox:
        sandbox.commands.run("true", check=True)
        yield sandbox


@contextlib.contextmanager
def full(disk: Path) -> Iterator[Sandbox]:
    """Inside, no byte more goes on the disk: one sandbox has them all."""
    with Sandbox.create(TINY, memory_mb=256) as greedy:
        greedy.commands.run(FILL, timeout=60)
        usage = os.statvfs(disk)
        assert usage.f_bfree == 0
        yield greedy


def make_room(greedy: Sandbox) -> None:
    greedy.commands.run("rm /root/fill /root/rest", timeout=60)


def health(daemon: Daemon) -> tuple[int, dict[str, str]]:
    url = (daemon.state / "url").read_text().strip().replace("ws://", "http://")
    try:
        with urllib.request.urlopen(f"{url}/healthz", timeout=10) as answer:
            status, body = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        status, body = error.code, error.read()
    return status, {r["subject"]: r["reason"] for r in json.loads(body)["reasons"]}


def test_output_that_was_lost_is_an_io_error_of_the_result(sb: Sandbox, disk: Path):
    with full(disk) as greedy:
        result = sb.commands.run("seq 1 20000; echo end >&2", timeout=60)
        assert result.exit_code == 0
        assert result.error is not None
        assert (result.error.code, result.ok) == ("io", False)
        whole = b"".join(b"%d\n" % i for i in range(1, 20001))
        assert whole.startswith(result.stdout_bytes)
        assert result.stdout_total == len(whole)
        with pytest.raises(IoError, match="lost"):
            sb.commands.run("seq 1 20000", timeout=60, check=True)
        with pytest.raises(IoError, match="lost"):
            list(sb.commands.start("seq 1 20000").stream())
        make_room(greedy)
        result = sb.commands.run("seq 1 20000", timeout=60, check=True)
        assert (result.stdout_bytes, result.error) == (whole, None)


def test_output_has_no_gap_when_there_is_room_again(sb: Sandbox, disk: Path):
    with full(disk) as greedy:
        script = "seq 1 20000; while [ ! -e /dev/shm/go ]; do sleep 0.0513; done; seq 1 20000"
        command = sb.commands.start(script, timeout=60)
        assert eventually(lambda: alive("0.0513"))
        make_room(greedy)
        sb.files.write("/dev/shm/go", b"")
        result = command.wait(60)
        whole = "".join(f"{i}\n" for i in range(1, 20001))
        assert result.stdout_total == 2 * len(whole)
        assert whole.startswith(result.stdout)
        assert isinstance(result.error, IoError)


def test_files_name_the_disk(sb: Sandbox, disk: Path):
    sb.files.write("/root/there", b"x" * 20_000)
    with full(disk) as greedy:
        with pytest.raises(IoError, match="/root/there.*disk"):
            sb.files.read("/root/there")
        with pytest.raises(IoError, match="/root/new"):
            sb.files.write("/root/new", b"x" * 20_000)
        # Memory has room. What is done must not be called worth another try.
        with pytest.raises(InternalError, match="/dev/shm/new' was written.*disk") as done:
            sb.files.write("/dev/shm/new", b"new")
        assert not done.value.retryable
        make_room(greedy)
        assert sb.files.read("/root/there") == b"x" * 20_000
        assert sb.files.read("/dev/shm/new") == b"new"


def test_creations_name_the_disk(small: Daemon, disk: Path):
    """Of inodes this time: records can be written, so that each step of a create is come to."""
    crumbs = disk / "crumbs"
    crumbs.mkdir()
    with contextlib.suppress(OSError):
        for i in range(INODES):
            (crumbs / str(i)).touch()
    made, refused = [], []
    for _ in range(20):  # ready slots go first
        try:
            made.append(Sandbox.create(TINY, memory_mb=32, timeout=20))
        except IoError as error:
            refused.append(str(error))
    assert any("overlay: read-only: is the disk full?" in why for why in refused)
    assert all("disk" in why or "No space left" in why for why in refused)
    shutil.rmtree(crumbs)
    for sb in made:
        sb.stop()
    with Sandbox.create(TINY, memory_mb=32) as other:
        assert other.commands.run("echo room", check=True).stdout == "room\n"


@pytest.mark.parametrize("end", [Daemon.kill, Daemon.leave])
def test_dsecd_comes_back_to_what_runs_on_a_full_disk(
    small: Daemon, sb: Sandbox, disk: Path, end
):
    with full(disk) as greedy:
        command = sb.commands.start("while [ ! -e /dev/shm/go ]; do sleep 0.05; done; exit 3")
        end(small)
        small.start()
        status, reasons = health(small)
        assert status == 503
        assert "sandbox" in reasons["host_lacks"]
        sb.commands.run("touch /dev/shm/go", timeout=60, check=True)
        assert command.wait(60).exit_code == 3
        make_room(greedy)
        assert eventually(lambda: "host_lacks" not in health(small)[1], 30)
        with Sandbox.create(TINY, memory_mb=32) as other:
            assert other.commands.run("echo room", check=True).stdout == "room\n"

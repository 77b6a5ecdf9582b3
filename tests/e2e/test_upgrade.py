"""An upgrade from a whole earlier release: what the dsecd of the commit in `release-baseline` has
started goes on under this one, which is started over the same state.

`DSEC_PREVIOUS` names that dsecd; `scripts/test --full` builds it by `scripts/build-earlier`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import serve
from daemon import Daemon, binary
from images import TINY

from libdsec import Command, Sandbox, SandboxInfo

ONE_PROCESS = "releases before this one have no roles"

COUNT = 4
COUNTING = "i=0; while [ ! -e /root/go ]; do i=$((i+1)); echo $i; sleep 0.001; done; echo end >&2; exit 7"
"""Writes all the time until it is told to end."""


@pytest.fixture(scope="module")
def previous() -> Path:
    named = os.environ.get("DSEC_PREVIOUS")
    if not named:
        pytest.skip("DSEC_PREVIOUS names no dsecd of an earlier release: scripts/test --full has one")
    return Path(named)


@pytest.fixture
def earlier(previous: Path, tiny_tree: Path) -> Iterator[Daemon]:
    """It is the earlier release's own: its image store too."""
    yield from serve(
        "upgrade", lambda d: d.image_import(TINY, tiny_tree, "base"), program=previous
    )


def counted(command: Command) -> None:
    """Its output has every number once, in order."""
    result = command.wait(60)
    assert (result.exit_code, result.stderr, result.stdout_truncated) == (7, "end\n", False)
    numbers = result.stdout_bytes.split()
    assert len(numbers) > 10
    assert numbers == [b"%d" % (i + 1) for i in range(len(numbers))]


def listed() -> dict[str, SandboxInfo]:
    """Without the moment of an end: one that was killed right after it could not write it down."""
    return {s.id: replace(s, ended_unix_ms=0) for s in Sandbox.list()}


@pytest.mark.parametrize("end", [Daemon.leave, Daemon.kill])
def test_what_an_earlier_release_has_started_goes_on(
    earlier: Daemon, end: Callable[[Daemon], object]
):
    sandboxes = [
        Sandbox.create(TINY, memory_mb=64, labels={"n": str(i)}, detached=i % 2 == 1)
        for i in range(COUNT)
    ]
    for sb in sandboxes:
        sb.files.write("/root/before", sb.id.encode())
        sb.commands.start("echo run; exit 3", command_id="ended").wait(60)
    counting = [sb.commands.start(COUNTING, command_id="counting") for sb in sandboxes]
    over = Sandbox.create(TINY, memory_mb=64)
    over.commands.start("echo over", command_id="kept").wait(60)
    over.stop()
    before = listed()
    launcher = earlier.launcher

    end(earlier)
    earlier.program = binary()
    earlier.start()

    assert listed() == before
    assert earlier.launcher == launcher  # which holds them
    for sb, command in zip(sandboxes, counting, strict=True):
        # A known id is not run again.
        ended = sb.commands.start("echo again", command_id="ended").wait(60)
        assert (ended.exit_code, ended.stdout) == (3, "run\n")
        assert sb.commands.run("cat /root/before", timeout=60).stdout == sb.id
        sb.files.write("/root/go", b"")
        counted(command)
    assert Sandbox.connect(over.id).commands.connect("kept").wait(60).stdout == "over\n"
    with Sandbox.create(TINY, memory_mb=64) as beside:
        assert beside.commands.run("echo beside", timeout=60).stdout == "beside\n"
    for sb in sandboxes:
        sb.stop()

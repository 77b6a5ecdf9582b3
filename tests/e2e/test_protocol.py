"""Sandboxes that the guests of an earlier protocol hold are taken over: launcher and aether of the
commit in `protocol-baseline`, run by this dsecd, then left to one with its own guests.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import serve
from daemon import ROOT, Daemon
from images import TINY

from libdsec import Sandbox

BASELINE = (Path(__file__).parent / "protocol-baseline").read_text().strip()


@pytest.fixture(scope="module")
def earlier_guests() -> Path:
    target = ROOT / "build" / "earlier-guests" / BASELINE[:12]
    done = subprocess.run(
        [ROOT / "scripts" / "build-earlier", "guest", BASELINE, target],
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    if done.returncode == 3:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    return target


@pytest.fixture
def earlier(earlier_guests: Path, tiny_tree: Path) -> Iterator[Daemon]:
    environment = {"DSEC_GUEST": str(earlier_guests)}
    yield from serve(
        "protocol", lambda d: d.image_import(TINY, tiny_tree, "base"), environment=environment
    )


def test_sandboxes_of_the_last_protocol_are_taken_over(earlier: Daemon) -> None:
    held = Sandbox.create(TINY, memory_mb=64, detached=True)
    held.commands.start("echo before; exit 3", command_id="ended").wait(60)
    held.commands.run("mkfifo go", timeout=10)
    held.commands.start("read line <go; echo $line; echo more >&2", command_id="running")
    launcher = earlier.launcher
    earlier.own_environment.clear()  # the next one has its own guests
    earlier.restart()
    assert earlier.launcher == launcher
    again = Sandbox.connect(held.id)
    ended = again.commands.get("ended").wait(10)
    assert (ended.exit_code, ended.stdout) == (3, "before\n")
    assert again.commands.run("echo after", timeout=10).stdout == "after\n"
    again.commands.run("echo went >go", timeout=10)
    ended = again.commands.get("running").wait(10)
    assert (ended.exit_code, ended.stdout, ended.stderr) == (0, "went\n", "more\n")
    # New ones are made by the old launcher too, until it is replaced.
    with Sandbox.create(TINY, memory_mb=64) as beside:
        assert beside.commands.run("echo beside", timeout=10).stdout == "beside\n"
    again.stop()

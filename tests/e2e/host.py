"""Looking at sandboxes from the host, as root."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path


def alive(marker: str) -> list[str]:
    """Processes of the host, sandboxes included, that have the word among their arguments."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:  # ended meanwhile
            continue
        if marker.encode() in words:
            found.append(process.name)
    return found


def eventually(done: Callable[[], object], seconds: float = 10) -> bool:
    """Whether `done` became true within `seconds`; looks again and again."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True

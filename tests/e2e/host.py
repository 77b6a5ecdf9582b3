"""Looking at sandboxes from the host, as root."""

from __future__ import annotations

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

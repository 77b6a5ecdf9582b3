"""Looking at sandboxes from the host, as root."""

from __future__ import annotations

import contextlib
import os
import random
import socket
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


def aether_of(pid: str) -> int:
    """PID 1 of the sandbox in which a process runs, as the host sees it."""
    number = int(pid)
    while os.readlink(f"/proc/{number}/exe") != "/memfd:aether (deleted)":
        number = parent_of(Path(f"/proc/{number}"))
    return number


def launcher_of(state: Path) -> int:
    """The launcher of a state directory's instance; 0 when there is none. Its children look like it
    until they execute something else or end.
    """
    variable = f"DSEC_STATE={state}".encode()
    parents: dict[int, int] = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(process / "exe") != "/memfd:dsec-launcher (deleted)":
                continue
            if variable in (process / "environ").read_bytes().split(b"\0"):
                parents[int(process.name)] = parent_of(process)
        except OSError:  # ended meanwhile
            continue
    return next((pid for pid, parent in parents.items() if parent not in parents), 0)


def parent_of(process: Path) -> int:
    return int((process / "status").read_text().partition("\nPPid:")[2].split()[0])


def eventually(done: Callable[[], object], seconds: float = 10) -> bool:
    """Whether `done` became true within `seconds`; looks again and again."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def free_port() -> int:
    """A port of loopback that no client gets for its own end: there a daemon can listen again."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(max(1024, lowest // 2), lowest)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port

"""What an instance has left on the host after its daemon is gone: an empty list when all is clean.

Looks from outside, by the instance's name and its state directory, at everything that can outlive a
process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def leaks(instance: str, state: Path) -> list[str]:
    return [
        *_processes(instance, state),
        *_mounts(state),
        *_groups(instance),
        *_loop_devices(state),
        *_files(state),
    ]


def _processes(instance: str, state: Path) -> Iterator[str]:
    """Processes in the instance's groups, with its state directory in their arguments, or with open
    files there.
    """
    for process in Path("/proc").glob("[0-9]*"):
        if process.name == str(os.getpid()):
            continue
        try:
            arguments = (
                (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            )
            groups = (process / "cgroup").read_text()
            files = [os.readlink(fd) for fd in (process / "fd").iterdir()]
            files.append(os.readlink(process / "cwd"))
        except OSError:  # ended meanwhile
            continue
        if (
            f"/{instance}/" in groups
            or groups.rstrip().endswith(f"/{instance}")
            or str(state) in arguments
            or any(file.startswith(f"{state}/") or file == str(state) for file in files)
        ):
            yield f"process {process.name}: {arguments.strip() or groups.strip()}"


def _mounts(state: Path) -> Iterator[str]:
    """Mounts at or from the state directory, in any mount namespace that a process is in."""
    seen: set[str] = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            namespace = os.readlink(process / "ns" / "mnt")
            if namespace in seen:
                continue
            seen.add(namespace)
            lines = (process / "mountinfo").read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            if str(state) in line:
                yield f"mount in {namespace} of process {process.name}: {line}"


def _groups(instance: str) -> Iterator[str]:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        if rest.split()[0] in ("cgroup", "cgroup2"):
            group = Path(fields.split()[4]) / instance
            if group.exists():
                yield f"control group {group}"


def _loop_devices(state: Path) -> Iterator[str]:
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            file = backing.read_text().strip()
        except OSError:
            continue
        if file.startswith(str(state)):
            yield f"loop device {backing.parts[3]}: {file}"


def _files(state: Path) -> Iterator[str]:
    for directory in ("sandboxes", "trash", "layers", "images/tmp"):
        for entry in (state / directory).glob("*"):
            yield f"file {entry}"
    if (state / "launcher.sock").exists():
        yield f"file {state / 'launcher.sock'}"

"""OCI image layouts for the tests, from tars made here; trees as values that can be compared."""

from __future__ import annotations

import contextlib
import ctypes
import gzip
import hashlib
import io
import json
import os
import platform
import random
import shutil
import stat
import subprocess
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OWN = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
LAYER = "application/vnd.oci.image.layer.v1.tar"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"


def missing(*programs: str) -> str:
    """Why a test that needs them cannot run, or nothing."""
    lacking = [p for p in programs if shutil.which(p) is None]
    return f"not installed: {', '.join(lacking)}" if lacking else ""


def entry(name: str, kind: bytes = tarfile.REGTYPE, data: bytes = b"", **more: Any) -> tuple:
    """A member of a tar; `xattrs` and all that TarInfo has by keyword."""
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(data)
    info.mode = 0o755 if kind == tarfile.DIRTYPE else 0o644
    info.mtime = 1_000_000_000
    for key, value in more.pop("xattrs", {}).items():
        info.pax_headers[f"SCHILY.xattr.{key}"] = value
    for key, value in more.items():
        setattr(info, key, value)
    return info, data


def tar(members: Iterable[tuple]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(
        fileobj=out, mode="w", format=tarfile.PAX_FORMAT, encoding="utf-8", errors="surrogateescape"
    ) as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def pack(data: bytes, how: str) -> bytes:
    if how == "gzip":
        return gzip.compress(data, 1)
    if how == "zstd":
        return subprocess.run(["zstd", "-qc"], input=data, capture_output=True, check=True).stdout
    return data


class Layout:
    """An OCI image layout in a directory."""

    def __init__(self, directory: Path):
        self.directory = directory
        self.blobs = directory / "blobs" / "sha256"
        self.blobs.mkdir(parents=True)
        (directory / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
        self._index: list[dict] = []

    def blob(self, data: bytes, media_type: str) -> dict:
        digest = hashlib.sha256(data).hexdigest()
        (self.blobs / digest).write_bytes(data)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}

    def manifest(
        self, tars: list[bytes], config: dict | None = None, how: str = "", architecture: str = OWN
    ) -> dict:
        suffix = f"+{how}" if how else ""
        layers = [self.blob(pack(t, how), LAYER + suffix) for t in tars]
        document = {
            "os": "linux",
            "architecture": architecture,
            "config": config or {},
            "rootfs": {
                "type": "layers",
                "diff_ids": ["sha256:" + hashlib.sha256(t).hexdigest() for t in tars],
            },
            "history": [{"created_by": "test"} for _ in tars],
        }
        described = self.blob(
            json.dumps(document).encode(), "application/vnd.oci.image.config.v1+json"
        )
        whole = {
            "schemaVersion": 2, "mediaType": MANIFEST, "config": described, "layers": layers,
        }  # fmt: skip
        return self.blob(json.dumps(whole).encode(), MANIFEST)

    def index(self, manifests: list[dict]) -> dict:
        whole = {"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}
        return self.blob(json.dumps(whole).encode(), INDEX)

    def tag(self, descriptor: dict, name: str) -> str:
        """Makes it an image of that name; how `dsecd image import` is told of it."""
        annotations = {"org.opencontainers.image.ref.name": name}
        self._index.append({**descriptor, "annotations": annotations})
        (self.directory / "index.json").write_text(
            json.dumps({"schemaVersion": 2, "manifests": self._index})
        )
        return f"oci:{self.directory}:{name}"


@dataclass
class Stack:
    """Random layers over each other. What is in the tree is remembered, so that hard links and
    directories mean something.

    `implied` are directories that no layer describes: umoci gives them the time of its run and
    what a set-group-id directory above them passes on. `untimed` are those in which one was made on
    the way: umoci gives these another time than their layer says. Attributes without a value are
    left alone, since Go takes them for deleted ones.
    """

    seed: int
    untimed: set[str] = field(default_factory=set)
    kinds: dict[str, str] = field(default_factory=dict)  # path -> dir, implied, file, link, fifo
    ways: dict[str, str] = field(default_factory=dict)  # link -> the directory it leads to
    layers: list[bytes] = field(default_factory=list)

    NAMES = ["a", "b", "c", "lib", "x.y", "e\u0301", "\u00e9", "raw-\udcff\udcfe", "new\nline",
             "long-" + "n" * 180, "back\\slash", "-dash", "sp ace"]  # fmt: skip

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        for _ in range(self.random.randint(1, 5)):
            self.layers.append(tar(self._layer()))

    def _layer(self) -> list[tuple]:
        r = self.random
        members = list(self._whiteouts())
        written: set[str] = set()
        for _ in range(r.randint(0, 40)):
            if made := self._entry(written):
                members.append(made)
        if r.random() < 0.3:
            members.append(entry("./", tarfile.DIRTYPE, **self._metadata()))
            self.kinds[""] = "dir"
        if "" not in self.kinds:
            self.untimed.add("")
        return members

    def _whiteouts(self) -> Iterator[tuple]:
        r = self.random
        for path in r.sample(sorted(self.kinds), min(len(self.kinds), r.randint(0, 3))):
            if path not in self.kinds or not path:
                continue
            above, _, name = path.rpartition("/")
            if self._is_directory(path) and r.random() < 0.5:
                self._forget_inside(path)
                yield entry(f"{path}/.wh..wh..opq")
            else:
                self._forget(path)
                yield entry(f"{above}/.wh.{name}" if above else f".wh.{name}")

    def _entry(self, written: set[str]) -> tuple | None:
        r = self.random
        directories = ["", *(p for p in self.kinds if p and self._is_directory(p))]
        above = r.choice(directories)
        if r.random() < 0.1:
            above = f"{above}/{r.choice(self.NAMES)}" if above else r.choice(self.NAMES)
            if above in self.kinds and not self._is_directory(above):
                return None
        name = r.choice(self.NAMES)
        path = said = f"{above}/{name}" if above else name
        ways = [w for w, to in self.ways.items() if self.kinds.get(w) == "link" and to == above]
        if ways and r.random() < 0.5:
            said = f"{r.choice(ways)}/{name}"
        if len(path) > 900:
            return None
        kind = r.choice(["file"] * 4 + ["dir"] * 3 + ["link", "hard", "fifo"])
        targets = [p for p, k in self.kinds.items() if k in ("file", "link") and p != path
                   and not p.startswith(path + "/")]  # fmt: skip
        if kind == "hard" and not targets:
            return None
        self._imply(above)
        if not (kind == "dir" and self._is_directory(path)):
            self._forget(path)
        if kind == "hard":
            target = r.choice(targets)
            self.kinds[path] = self.kinds[target]
            return entry(said, tarfile.LNKTYPE, linkname=target)
        self.kinds[path] = kind
        prefix = r.choice(["", "./", "/"])
        if kind == "dir":
            return entry(prefix + said, tarfile.DIRTYPE, **self._metadata(attributes=True))
        if kind == "link":
            target = r.choice(["/etc/x", "../../..", "a", self.NAMES[5], "t" * 150])
            # One that leads to a directory of the tree, and is then gone through.
            inside = r.choice(
                [p for p in directories if p and not f"{p}/".startswith(f"{path}/")] or [""]
            )
            self.ways.pop(path, None)
            if inside and r.random() < 0.5:
                self.ways[path], target = inside, f"/{inside}"
            return entry(prefix + said, tarfile.SYMTYPE, linkname=target, **self._metadata())
        if kind == "fifo":
            return entry(prefix + said, tarfile.FIFOTYPE, **self._metadata())
        data = r.randbytes(r.choice([0, 1, 511, 512, 513, 5000, 70_000]))
        return entry(prefix + said, tarfile.REGTYPE, data, **self._metadata(attributes=True))

    def _metadata(self, *, attributes: bool = False) -> dict[str, Any]:
        r = self.random
        out: dict[str, Any] = {
            "mode": r.choice([0o644, 0o755, 0o4755, 0o2750, 0o1777, 0o600, 0]),
            "uid": r.choice([0, 1000, 65535]),
            "gid": r.choice([0, 50, 65534]),
            "mtime": r.choice([1, 1_234_567_890, 1_600_000_000.123456, 4_000_000_000]),
        }
        if attributes and r.random() < 0.3:
            out["xattrs"] = {f"user.{n}": r.choice(["v", "\u00e9", "=a\nb"])
                             for n in r.sample(["one", "two", "three"], 2)}  # fmt: skip
        return out

    def _is_directory(self, path: str) -> bool:
        return self.kinds.get(path) in ("dir", "implied")

    def _imply(self, path: str) -> None:
        parts = path.split("/") if path else []
        for i in range(len(parts)):
            made = "/".join(parts[: i + 1])
            if made not in self.kinds:
                self.kinds[made] = "implied"
                self.untimed |= {made, "/".join(parts[:i])}

    @property
    def implied(self) -> set[str]:
        return {p for p, kind in self.kinds.items() if kind == "implied"}

    def _forget_inside(self, path: str) -> None:
        for p in [p for p in self.kinds if p.startswith(path + "/")]:
            del self.kinds[p]

    def _forget(self, path: str) -> None:
        self._forget_inside(path)
        self.kinds.pop(path, None)


def describe(
    root: Path, *, untimed: Iterable[str] = (), implied: Iterable[str] = ()
) -> dict[bytes, tuple]:
    """Every file of a tree by its name: kind, mode, owner, time, attributes, content, and the first
    other name of it.
    """
    top = os.fsencode(root)
    no_time = {os.fsencode(p) for p in untimed}
    inherits = {os.fsencode(p) for p in implied}
    found: dict[bytes, tuple] = {}
    first: dict[int, bytes] = {}

    def add(path: bytes, name: bytes) -> None:
        s = os.lstat(path)
        is_dir = stat.S_ISDIR(s.st_mode)
        content: object = None
        if stat.S_ISREG(s.st_mode):
            content = hashlib.sha256(Path(os.fsdecode(path)).read_bytes()).hexdigest()
        elif stat.S_ISLNK(s.st_mode):
            content = os.readlink(path)
        attributes = {a: os.getxattr(path, a, follow_symlinks=False)
                      for a in os.listxattr(path, follow_symlinks=False)
                      if not a.startswith(("trusted.", "security.selinux"))}  # fmt: skip
        found[name] = (
            oct(s.st_mode & ~stat.S_ISGID if name in inherits else s.st_mode),
            s.st_uid, None if name in inherits else s.st_gid,
            None if name in no_time else s.st_mtime_ns, sorted(attributes.items()), content,
            None if is_dir else first.setdefault(s.st_ino, name),
        )  # fmt: skip

    add(top, b"")
    for directory, names, files in os.walk(top):
        names.sort()
        for name in sorted(names + files):
            path = os.path.join(directory, name)
            add(path, os.path.relpath(path, top))
    return found


def differences(expected: dict[bytes, tuple], actual: dict[bytes, tuple]) -> list[str]:
    return [
        f"{name!r}: {expected.get(name)} became {actual.get(name)}"
        for name in sorted(expected.keys() | actual.keys())
        if expected.get(name) != actual.get(name)
    ]


@contextlib.contextmanager
def mounted(blob: Path, where: Path) -> Iterator[Path]:
    """An EROFS file, mounted; by a loop device where the kernel mounts block devices only."""
    where.mkdir(exist_ok=True)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(os.fsencode(blob), os.fsencode(where), b"erofs", 1, None) != 0:
        subprocess.run(["mount", "-t", "erofs", "-o", "loop,ro", blob, where], check=True)
    try:
        yield where
    finally:
        subprocess.run(["umount", where], check=True)

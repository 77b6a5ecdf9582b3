"""import: an OCI image of a gigabyte, made of this machine's /usr in layers of gzip, imported by dsecd (into one EROFS
layer, verified and on disk) and unpacked by umoci (into a directory), one after the other."""
import gzip
import hashlib
import json
import os
import pathlib
import platform
import shutil
import subprocess
import tarfile
import time

from runner.errors import Unable
from runner.rows import Row, Series, row
from runner.workshop import Workshop

BYTES, QUICK_BYTES = 1 << 30, 64 << 20
LAYERS = 4
ROUNDS, QUICK_ROUNDS = 5, 2
MEDIA = "application/vnd.oci.image."


class _Layer:
    """A gzip'ed tar on its way to disk, with the digests of both."""

    def __init__(self, file: pathlib.Path):
        self.file, self.bytes = file, 0
        self._diff = hashlib.sha256()
        # Level 1 as speed goes here; what reads it cannot tell.
        self._packed = gzip.open(file, "wb", compresslevel=1)
        self.tar = tarfile.open(fileobj=self, mode="w|", format=tarfile.PAX_FORMAT)

    def write(self, data: bytes) -> int:
        self._diff.update(data)
        self.bytes += len(data)
        return self._packed.write(data)

    def close(self) -> tuple[dict, str]:
        self.tar.close()
        self._packed.close()
        descriptor = _stored(self.file.read_bytes(), "layer.v1.tar+gzip", self.file.parent)
        self.file.unlink()
        return descriptor, "sha256:" + self._diff.hexdigest()


def _stored(data: bytes, kind: str, blobs: pathlib.Path) -> dict:
    digest = hashlib.sha256(data).hexdigest()
    (blobs / digest).write_bytes(data)
    return {"mediaType": MEDIA + kind, "digest": f"sha256:{digest}", "size": len(data)}


def _files(total: int):
    """Files of /usr in a fixed order, with their directories and links, until they hold so much."""
    found = 0
    for directory, names, files in os.walk("/usr"):
        names.sort()
        for name in sorted(files):
            path = os.path.join(directory, name)
            status = os.lstat(path)
            if status.st_uid > 65535 or status.st_gid > 65535:
                continue
            yield path
            found += status.st_size
            if found >= total:
                return


def _make(layout: pathlib.Path, total: int) -> tuple[str, int]:
    """The image in an OCI layout; how it is called, and the bytes of its tars."""
    blobs = layout / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    paths = list(_files(total))
    layers, diff_ids, size = [], [], 0
    for number in range(LAYERS):
        layer = _Layer(blobs / "layer")
        for path in paths[number * len(paths) // LAYERS:(number + 1) * len(paths) // LAYERS]:
            layer.tar.add(path, recursive=False)
        descriptor, diff_id = layer.close()
        layers.append(descriptor)
        diff_ids.append(diff_id)
        size += layer.bytes
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
    config = {"os": "linux", "architecture": architecture, "config": {"Env": ["PATH=/usr/bin:/bin"]},
              "rootfs": {"type": "layers", "diff_ids": diff_ids}}
    manifest = {"schemaVersion": 2, "config": _stored(json.dumps(config).encode(), "config.v1+json", blobs),
                "layers": layers}
    described = _stored(json.dumps(manifest).encode(), "manifest.v1+json", blobs)
    described["annotations"] = {"org.opencontainers.image.ref.name": "1"}
    (layout / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [described]}))
    return f"{layout}:1", size


def _timed(series: Series, arguments: list[str], made: pathlib.Path) -> None:
    """One round, from nothing: what it made goes afterwards. The image is in the page cache for both."""
    os.sync()
    begin = time.monotonic()
    done = subprocess.run(arguments, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    took = (time.monotonic() - begin) * 1e3
    shutil.rmtree(made, ignore_errors=True)
    if done.returncode != 0:
        raise Unable(f"{arguments[0]} failed: {done.stderr[-2000:]}")
    series.blocks.append([took])


def measure(shop: Workshop) -> list[Row]:
    umoci = shutil.which("umoci")
    if umoci is None:
        raise Unable("umoci is not installed: scripts/setup")
    scratch = shop.scratch / "import"
    image, size = _make(scratch / "layout", QUICK_BYTES if shop.quick else BYTES)
    dsecd, peer = Series(), Series()
    for _ in range(QUICK_ROUNDS if shop.quick else ROUNDS):
        _timed(dsecd, [shop.program("dsecd"), "image", "import", "bench:1", f"oci:{image}", "--kind", "base", "--state",
                       str(scratch / "state")], scratch / "state")
        _timed(peer, [umoci, "unpack", "--image", image, str(scratch / "bundle")], scratch / "bundle")
    shutil.rmtree(scratch)
    what = f"{size >> 20} MiB of /usr in {LAYERS} layers of gzip"
    return [
        row("import.dsecd", dsecd, f"{what}: digests, one tree, EROFS, on disk", at_most=peer.best_p50),
        row("import.umoci", peer, f"{what}: `umoci unpack` into a directory, not synced"),
    ]

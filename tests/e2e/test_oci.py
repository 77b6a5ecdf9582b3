"""Images of other makers: OCI layouts, what `docker save` writes, registries. What comes out is
compared with what `umoci unpack` makes of the same; what should not be taken leaves nothing.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import host
import oci
import pytest
from conftest import FULL
from daemon import ROOT, Daemon, binary
from host import eventually

from libdsec import CorruptError, InvalidArgumentError, Sandbox

STACKS = 60 if FULL else 12


class Store:
    """A state directory without a daemon."""

    def __init__(self, directory: Path):
        self.directory = directory

    def start(self, *arguments: str, environment: dict[str, str] | None = None):
        return subprocess.Popen(
            [binary(), "image", "import", *arguments, "--state", self.directory],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, **(environment or {})},
        )  # fmt: skip

    def run(self, name: str, source: str, *more: str, environment: dict[str, str] | None = None):
        process = self.start(name, source, "--kind", "base", *more, environment=environment)
        try:
            out, err = process.communicate(timeout=100)
        finally:
            process.kill()
        return process.returncode, out + err

    def take(self, name: str, source: str, *more: str) -> str:
        code, said = self.run(name, source, *more)
        assert code == 0, said
        return said

    def manifest(self, name: str) -> dict:
        file = self.directory / "images" / "manifests" / "base" / f"{name}@latest.json"
        return json.loads(file.read_text())

    def blob(self, name: str) -> Path:
        digest = self.manifest(name)["digest"]
        return self.directory / "images" / "blobs" / "sha256" / f"{digest}.erofs"

    def left(self) -> list[str]:
        """What is neither an image nor a lock."""
        images = self.directory / "images"
        named = {json.loads(m.read_text())["digest"] + ".erofs"
                 for m in images.glob("manifests/base/*.json")}  # fmt: skip
        blobs = {b.name for b in images.glob("blobs/sha256/*")}
        return sorted(str(p) for p in images.glob("tmp/*")) + sorted(blobs - named)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "state")


@pytest.fixture
def layout(tmp_path: Path) -> oci.Layout:
    return oci.Layout(tmp_path / "layout")


def need(*programs: str) -> None:
    if why := oci.missing(*programs):
        pytest.skip(why)


@pytest.mark.parametrize("seed", range(STACKS))
def test_random_layers_come_out_as_umoci_unpacks_them(seed, store, layout, tmp_path):
    need("umoci", "zstd")
    stack = oci.Stack(seed)
    how = ["", "gzip", "zstd"][seed % 3]
    # umoci 0.4 reads no zstd.
    theirs = layout.tag(layout.manifest(stack.layers, how="" if how == "zstd" else how), "theirs")
    source = layout.tag(layout.manifest(stack.layers, how=how), "ours")
    bundle = tmp_path / "bundle"
    subprocess.run(
        ["umoci", "unpack", "--image", theirs.removeprefix("oci:"), bundle],
        check=True, capture_output=True,
    )  # fmt: skip
    store.take("x", source)
    known = {"untimed": stack.untimed, "implied": stack.implied}
    expected = oci.describe(bundle / "rootfs", **known)
    with oci.mounted(store.blob("x"), tmp_path / "mnt") as root:
        actual = oci.describe(root, **known)
    assert oci.differences(expected, actual) == []
    assert store.left() == []


@pytest.mark.parametrize("how", ["", "gzip", "zstd"])
def test_every_compression_gives_the_same_image(how, store, layout):
    need("zstd")
    layer = oci.tar([oci.entry("a", data=b"x" * 100_000), oci.entry("b", data=b"y")])
    store.take("plain", layout.tag(layout.manifest([layer]), "plain"))
    store.take("packed", layout.tag(layout.manifest([layer], how=how), "packed"))
    assert store.manifest("plain")["digest"] == store.manifest("packed")["digest"]


CONFIG = {
    "Env": ["PATH=/opt/bin:/bin", "GREETING=from the image"],
    "WorkingDir": "/srv/work",
    "User": "agent",
    "Entrypoint": ["/bin/echo", "entry"],
    "Cmd": ["default", "arguments"],
    "Labels": {"org.example": "1"},
}


def foreign_layers(tree: Path) -> list[bytes]:
    members: list[tuple] = []
    for path in sorted(tree.rglob("*")):
        s, name = path.lstat(), str(path.relative_to(tree))
        common = {"mode": s.st_mode & 0o7777, "uid": s.st_uid, "gid": s.st_gid}
        if path.is_symlink():
            members.append(
                oci.entry(name, tarfile.SYMTYPE, linkname=str(path.readlink()), **common)
            )
        elif path.is_dir():
            members.append(oci.entry(name, tarfile.DIRTYPE, **common))
        else:
            members.append(oci.entry(name, data=path.read_bytes(), **common))
    upper = [
        oci.entry("opt/bin", tarfile.DIRTYPE, mode=0o755),
        oci.entry("opt/bin/hello", data=b"#!/bin/sh\necho hello from a layer\n", mode=0o755),
        oci.entry("srv/work", tarfile.DIRTYPE, mode=0o755, uid=1000, gid=1000),
        oci.entry("bin/.wh.wget"),
    ]
    return [oci.tar(members), oci.tar(upper)]


@pytest.fixture
def foreign(own: Daemon, tiny_tree: Path, layout: oci.Layout) -> str:
    source = layout.tag(layout.manifest(foreign_layers(tiny_tree), CONFIG, how="gzip"), "1")
    own.image_import("foreign:1", source, "base")
    return "foreign:1"


def test_the_images_configuration_is_every_commands_default(own, foreign):
    with Sandbox.create(foreign, memory_mb=64) as sb:
        run = sb.commands.run
        assert run("echo $GREETING; pwd; id -u; hello; ls /bin/wget").stdout.split("\n")[:4] == [
            "from the image", "/srv/work", "1000", "hello from a layer",
        ]  # fmt: skip
        assert run(["test", "-e", "/bin/wget"]).exit_code == 1
        assert run("pwd; id -u", cwd="/tmp", user="root").stdout == "/tmp\n0\n"
        assert run("echo $GREETING", env={"GREETING": "mine"}).stdout == "mine\n"


def test_the_entrypoint_is_used_when_asked_for_also_by_the_next_daemon(own, foreign):
    with Sandbox.create(foreign, memory_mb=64) as sb:
        for _ in range(2):
            run = sb.commands.run
            assert run(["/bin/echo", "plain"]).stdout == "plain\n"
            assert run(["a", "b c"], use_entrypoint=True).stdout == "entry a b c\n"
            assert run([], use_entrypoint=True).stdout == "entry default arguments\n"
            assert sb.commands.start(["x"], use_entrypoint=True).wait().stdout == "entry x\n"
            own.restart()
        with pytest.raises(InvalidArgumentError, match="list of arguments"):
            sb.commands.run("text", use_entrypoint=True)
    with Sandbox.create("tiny:1", memory_mb=64) as sb:
        with pytest.raises(InvalidArgumentError, match="has no Entrypoint"):
            sb.commands.run(["x"], use_entrypoint=True)


@pytest.mark.parametrize("damage", ["superblock", "inodes", "cut"])
def test_a_damaged_layer_is_corrupt_and_named_and_importing_again_mends_it(own, tiny_tree, damage):
    store = Store(own.state)
    manifest = own.state / "images" / "manifests" / "base" / "tiny@1.json"
    digest = json.loads(manifest.read_text())["digest"]
    blob = own.state / "images" / "blobs" / "sha256" / f"{digest}.erofs"
    data = bytearray(blob.read_bytes())
    if damage == "superblock":
        data[1024:1152] = bytes(128)
    elif damage == "inodes":
        data[1152:65536] = b"\xff" * (65536 - 1152)
    else:
        del data[-4096:]
    blob.unlink()
    blob.write_bytes(data)
    with pytest.raises(CorruptError, match=f"{digest}.*import"):
        Sandbox.create("tiny:1", memory_mb=64)
    own.image_import("tiny:1", tiny_tree, "base")
    with Sandbox.create("tiny:1", memory_mb=64) as sb:
        assert sb.commands.run("echo mended").stdout == "mended\n"
    assert store.left() == []


def test_the_dsec_command_uses_the_entrypoint_too(own, foreign):
    def dsec(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "libdsec", "run", foreign, "--memory", "64", *arguments],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
            env=own.environment,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert dsec("--use-entrypoint", "--", "a", "b") == "entry a b\n"
    assert dsec("--use-entrypoint") == "entry default arguments\n"
    assert dsec("--", "/bin/echo", "alone") == "alone\n"


def test_what_was_left_out_is_told(store, layout, tmp_path):
    layer = oci.tar([
        oci.entry("dev/null", tarfile.CHRTYPE, devmajor=1, devminor=3),
        oci.entry("d", tarfile.DIRTYPE, mode=0o755, xattrs={"trusted.overlay.opaque": "y"}),
    ])  # fmt: skip
    said = store.take("x", layout.tag(layout.manifest([layer]), "1"))
    assert "left out 1 device nodes (dev/null)" in said
    assert "left out 1 extended attributes (trusted.overlay.opaque of d)" in said
    with oci.mounted(store.blob("x"), tmp_path / "mnt") as root:
        assert not (root / "dev/null").exists()
        assert os.listxattr(root / "d") == []


def save(source: str, place: Path) -> Path:
    """As `docker save` writes it."""
    saved = place / "saved.tar"
    subprocess.run(
        ["skopeo", "copy", "-q", source, f"docker-archive:{saved}:name:tag"],
        check=True, capture_output=True,
    )  # fmt: skip
    return saved


def test_what_skopeo_writes_is_bounded(store, layout, tmp_path):
    need("skopeo")
    layer = oci.tar([oci.entry("big", data=bytes(3 << 20))])
    saved = save(layout.tag(layout.manifest([layer]), "1"), tmp_path)
    config = tmp_path / "dsecd.toml"
    config.write_text("[import]\nmax_mb = 2\n")
    code, said = store.run("x", f"docker-archive:{saved}", "--config-file", str(config))
    assert (code, "import.max_mb" in said) == (65, True), said
    assert store.left() == []


def bomb_of_many_layers(layers: int, mib: int) -> bytes:
    """A saved image: each layer is small enough, gzip makes the archive smaller by far."""
    tars = [oci.tar([oci.entry(f"zeros{n}", data=bytes(mib << 20))]) for n in range(layers)]
    ids = [f"sha256:{hashlib.sha256(t).hexdigest()}" for t in tars]
    config = {"architecture": oci.OWN, "os": "linux", "config": {},
              "rootfs": {"type": "layers", "diff_ids": ids}}  # fmt: skip
    names = [f"{n}/layer.tar" for n in range(layers)]
    saved = [{"Config": "config.json", "RepoTags": ["bomb:1"], "Layers": names}]
    return oci.tar([
        *(oci.entry(name, data=gzip.compress(t)) for name, t in zip(names, tars, strict=True)),
        oci.entry("config.json", data=json.dumps(config).encode()),
        oci.entry("manifest.json", data=json.dumps(saved).encode()),
    ])  # fmt: skip


@pytest.mark.threat_17
def test_layers_of_an_archive_that_are_too_large_together_are_refused_unwritten(tmp_path):
    need("skopeo", "zstd")
    small = tmp_path / "small"
    small.mkdir()
    # Less than all layers, more than any: who writes them first finds it full.
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m,mode=700", "none", small], check=True)
    try:
        store = Store(small)
        config = tmp_path / "dsecd.toml"
        config.write_text("[import]\nmax_mb = 30\n")
        plain = bomb_of_many_layers(8, 4)
        assert len(plain) < 1 << 20
        for name, archive in (("plain", plain), ("packed", oci.pack(plain, "zstd"))):
            saved = tmp_path / name
            saved.write_bytes(archive)
            code, said = store.run("x", f"docker-archive:{saved}", "--config-file", str(config))
            assert (code, f"the 8 layers of docker-archive:{saved}" in said) == (65, True), said
            assert "import.max_mb" in said
            assert store.left() == []
        saved.write_bytes(bomb_of_many_layers(513, 0))
        code, said = store.run("x", f"docker-archive:{saved}", "--config-file", str(config))
        assert (code, "more than 512" in said, str(saved) in said) == (65, True, True), said
        assert store.left() == []
    finally:
        subprocess.run(["umount", "-l", small], check=True)


def test_a_compressed_archive_that_skopeo_cannot_read_is_to_be_decompressed(
    store, layout, tmp_path
):
    need("skopeo")
    layer = oci.tar([oci.entry("x", data=os.urandom(3 << 20))])
    saved = save(layout.tag(layout.manifest([layer]), "1"), tmp_path)
    packed = tmp_path / "saved.tar.gz"
    packed.write_bytes(gzip.compress(saved.read_bytes(), 1))
    code, said = store.run("x", f"docker-archive:{packed}")
    # A later skopeo than Debian 12's reads it.
    assert code == 0 or (code, "decompress the archive first" in said) == (74, True), said
    assert store.left() == []


def test_a_saved_docker_image_is_taken(store, layout, tmp_path):
    need("skopeo")
    layers = [oci.tar([oci.entry("one", data=b"1")]), oci.tar([oci.entry("two", data=b"2")])]
    source = layout.tag(layout.manifest(layers, CONFIG), "1")
    saved = save(source, tmp_path)
    store.take("x", f"docker-archive:{saved}")
    store.take("y", source)
    assert store.manifest("x")["digest"] == store.manifest("y")["digest"]
    assert store.manifest("x")["image"] == store.manifest("y")["image"]
    assert store.manifest("x")["image"]["config"] == CONFIG
    assert "up to date" in store.take("x", f"docker-archive:{saved}")
    code, said = store.run("z", f"docker-archive:{layout.directory}/oci-layout")
    assert (code, "skopeo could not copy" in said) == (74, True), said
    assert store.left() == []


def answers(address: str) -> bool:
    name, _, port = address.partition(":")
    with contextlib.suppress(OSError), socket.create_connection((name, int(port)), 1):
        return True
    return False


@contextlib.contextmanager
def registry(place: Path) -> Iterator[str]:
    """A registry on loopback, without TLS; its address."""
    program = ROOT / "build" / "registry" / "usr" / "bin" / "docker-registry"
    if not program.exists():
        pytest.skip(f"no {program}: scripts/setup fetches it")
    address = f"127.0.0.1:{host.free_port()}"
    (place / "registry.yml").write_text(
        f"version: 0.1\nlog: {{level: error}}\nhttp: {{addr: '{address}'}}\n"
        f"storage: {{filesystem: {{rootdirectory: '{place}/registry'}}}}\n"
    )
    with (place / "registry.log").open("wb") as log:
        process = subprocess.Popen(
            [program, "serve", place / "registry.yml"], stdout=log, stderr=log
        )
    try:
        assert eventually(lambda: answers(address), 20), (place / "registry.log").read_text()
        yield address
    finally:
        process.kill()
        process.wait()


def test_a_registry_is_read_without_tls_only_when_that_is_said(store, layout, tmp_path):
    need("skopeo")
    mine = layout.manifest([oci.tar([oci.entry("one", data=b"1")])], CONFIG)
    other = layout.manifest([oci.tar([])], architecture="riscv64")
    elsewhere = layout.index(
        [{**other, "platform": {"os": "linux", "architecture": "riscv64"}},
         {**other, "platform": {"os": "linux", "architecture": "s390x"}}]
    )  # fmt: skip
    insecure = "--insecure-registry"
    with registry(tmp_path) as address:
        for tag, descriptor in (("1", mine), ("elsewhere", elsewhere)):
            subprocess.run(
                ["skopeo", "copy", "-q", "--all", "--dest-tls-verify=false",
                 layout.tag(descriptor, tag), f"docker://{address}/team/app:{tag}"],
                check=True, capture_output=True,
            )  # fmt: skip
        image = f"docker://{address}/team/app"
        code, said = store.run("x", f"{image}:1")
        assert (code, "--insecure-registry" in said) == (69, True), said
        store.take("x", f"{image}:1", insecure)
        assert store.manifest("x")["image"]["config"] == CONFIG
        assert store.manifest("x")["source"] == f"{image}:1"
        code, said = store.run("y", f"{image}:2", insecure)
        assert (code, "manifest unknown" in said) == (66, True), said
        code, said = store.run("y", f"{image}:elsewhere", insecure)
        assert code == 69, said
        assert "there are: linux/riscv64, linux/s390x" in said
    code, said = store.run("y", f"{image}:1", insecure)
    assert (code, "connection refused" in said) == (69, True), said
    assert store.left() == []


def test_an_image_that_is_too_large_is_not_even_fetched(store, layout, tmp_path):
    need("skopeo")
    config = tmp_path / "dsecd.toml"
    config.write_text("[import]\nmax_mb = 8\n")
    arguments = ("--insecure-registry", "--config-file", str(config))
    halves = [oci.tar([oci.entry("x", data=os.urandom(5 << 20))]) for _ in range(2)]
    whole = layout.manifest(halves, CONFIG)
    with registry(tmp_path) as address:
        for tag, descriptor in (("one", whole), ("listed", layout.index([
            {**whole, "platform": {"os": "linux", "architecture": oci.OWN}}]))):  # fmt: skip
            image = f"docker://{address}/team/large:{tag}"
            subprocess.run(
                ["skopeo", "copy", "-q", "--all", "--dest-tls-verify=false",
                 layout.tag(descriptor, tag), image],
                check=True, capture_output=True,
            )  # fmt: skip
            code, said = store.run("x", image, *arguments)
            assert (code, "the 2 layers of" in said) == (65, True), said
            assert "import.max_mb" in said
        # What is left of the registry's blobs is enough to read the manifests.
        for blob in (tmp_path / "registry").rglob("blobs/sha256/*/*/data"):
            if blob.stat().st_size > 1 << 20:
                blob.unlink()
        code, said = store.run("x", image, *arguments)
        assert (code, "the 2 layers of" in said) == (65, True), said
    assert store.left() == []


def test_without_skopeo_the_package_is_named(store, tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    code, said = store.run("x", "docker://host.invalid/a:1", environment={"PATH": str(tools)})
    assert (code, "install the package skopeo" in said) == (69, True), said
    assert store.left() == []


def bomb(layout: oci.Layout) -> str:
    layer = oci.tar([oci.entry("zeros", data=bytes(64 << 20))])
    manifest = layout.manifest([layer], how="gzip")
    return layout.tag(manifest, "bomb")


@pytest.mark.threat_17
def test_hostile_layers_are_refused_by_name_and_leave_nothing(store, layout, tmp_path):
    def layer(*members: tuple) -> str:
        number = len(list(layout.blobs.iterdir()))
        return layout.tag(layout.manifest([oci.tar(members)]), f"t{number}")

    outside = tmp_path / "outside"
    outside.mkdir()
    config = tmp_path / "dsecd.toml"
    config.write_text("[import]\nmax_mb = 100\nmax_entries = 1000\nmax_ratio = 50\n")
    lied = layout.manifest([oci.tar([oci.entry("x")])])
    lying = json.loads((layout.blobs / lied["digest"].removeprefix("sha256:")).read_text())
    lying["layers"][0]["size"] += 1
    swapped = layout.manifest([oci.tar([oci.entry("y", data=b"content")])])
    layer_of_swapped = json.loads(
        (layout.blobs / swapped["digest"].removeprefix("sha256:")).read_text()
    )["layers"][0]["digest"].removeprefix("sha256:")
    other = (layout.blobs / layer_of_swapped).read_bytes().replace(b"content", b"CONTENT")
    (layout.blobs / layer_of_swapped).write_bytes(other)
    cut = layout.manifest([gzip.compress(oci.tar([oci.entry("x", data=os.urandom(9000))]))[:5000]])
    cases = [
        (layer(oci.entry("../escape")), 64, "leads out"),
        (layer(oci.entry("d", tarfile.SYMTYPE, linkname=str(outside)), oci.entry("d/x")), 64,
         "leads nowhere"),
        (layer(oci.entry("h", tarfile.LNKTYPE, linkname="../../etc/shadow")), 64, "leads out"),
        (layer(oci.entry("f"), oci.entry("f/x")), 64, "is not a directory"),
        (layer(oci.entry("u", uid=70_000)), 64, "sandbox has ids"),
        (layer(*(oci.entry(f"f{i}") for i in range(1001))), 65, "import.max_entries"),
        (layer(oci.entry("big", data=bytes(101 << 20))), 65, "import.max_mb"),
        (bomb(layout), 65, "import.max_ratio"),
        (layout.tag(layout.blob(json.dumps(lying).encode(), oci.MANIFEST), "lied"), 74,
         "its manifest says"),
        (layout.tag(swapped, "swapped"), 74, "is damaged"),
        (layout.tag(cut, "cut"), 74, "layer sha256:"),
        (layout.tag(layout.manifest([], architecture="riscv64"), "riscv"), 69, "linux/riscv64"),
        (f"oci:{layout.directory}:missing", 66, "no image 'missing'"),
        (f"oci:{tmp_path}/nowhere:x", 66, "no OCI layout"),
    ]  # fmt: skip
    for source, code, says in cases:
        got, said = store.run("x", source, "--config-file", str(config))
        assert (got, says in said) == (code, True), f"{source}: {got} {said}"
        assert store.left() == [], source
        assert not list((store.directory / "images/manifests/base").iterdir()), source
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("step", ["import.staged", "import.built", "import.converted"])
def test_an_import_killed_at_any_step_leaves_what_the_next_removes(step, store, layout):
    source = layout.tag(layout.manifest([oci.tar([oci.entry("x", data=b"1")])]), "1")
    code, _ = store.run("x", source, environment={"DSEC_FAILPOINTS": f"{step}=kill"})
    assert code == -signal.SIGKILL
    assert len(store.left()) == 1
    store.take("x", source)
    assert store.left() == []


# CHOWN, DAC_OVERRIDE, FOWNER, FSETID, SETFCAP
UNPACK_CAPABILITIES = (1 << 0) | (1 << 1) | (1 << 3) | (1 << 4) | (1 << 31)


def unpacker_of(importer: int) -> Path | None:
    """/proc of the process that reads the layers."""
    for status in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            text = status.read_text()
            if "Name:\tdsec-unpack\n" in text and f"PPid:\t{importer}\n" in text:
                return status.parent
    return None


@pytest.mark.threat_17
def test_an_import_killed_while_it_unpacks_takes_the_unpacking_along(store, layout):
    big = oci.tar([oci.entry(f"f{i}", data=os.urandom(1 << 20)) for i in range(128)])
    source = layout.tag(layout.manifest([big]), "1")
    process = store.start("x", source, "--kind", "base")
    roots = store.directory / "images" / "tmp"
    assert eventually(lambda: any(roots.glob("*/root/f*")), 30)
    reads = unpacker_of(process.pid)
    assert reads is not None
    status = (reads / "status").read_text()
    for kind in ("CapPrm", "CapEff", "CapBnd"):
        assert f"{kind}:\t{UNPACK_CAPABILITIES:016x}\n" in status
    assert "NoNewPrivs:\t1\n" in status
    assert os.readlink(reads / "root") == str(next(roots.glob("*/root")))
    assert os.readlink(reads / "ns/net") != os.readlink("/proc/self/ns/net")
    process.kill()
    process.wait()
    tree = next(roots.glob("*/root"))

    def ended() -> bool:
        try:
            return "State:\tZ" in (reads / "status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return True

    assert eventually(ended, 10)
    assert len(list(tree.iterdir())) < 128
    store.take("x", source)
    assert store.left() == []


def test_a_full_disk_is_said_and_leaves_nothing(layout, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,mode=700", "none", small], check=True)
    try:
        store = Store(small)
        layer = oci.tar([oci.entry("x", data=os.urandom(20 << 20))])
        source = layout.tag(layout.manifest([layer]), "1")
        code, said = store.run("x", source)
        assert (code, "No space left" in said) == (74, True), said
        assert store.left() == []
        need("skopeo")
        saved = f"docker-archive:{save(source, tmp_path)}"
        code, said = store.run("x", saved)
        assert (code, "o space left" in said) == (74, True), said
        assert store.left() == []
    finally:
        subprocess.run(["umount", "-l", small], check=True)


def test_help_shows_an_example_of_every_source(store):
    done = subprocess.run(
        [binary(), "image", "import", "--help"], capture_output=True, text=True, check=True
    )
    for source in ("docker://", "oci:", "docker-archive:", "debian:", "--insecure-registry"):
        assert source in done.stdout

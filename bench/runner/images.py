"""The layers that everything is measured in: a base of busybox and one dynamic program, a small workspace and toolkit.
The same trees serve dsecd (imported), the floor (the imported blobs) and runc (a plain directory)."""
import dataclasses
import json
import pathlib
import re
import shutil
import subprocess

from runner.errors import Unable

NAMES = {"base": "bench-base:1", "workspace": "bench-workspace:1", "toolkit": "bench-toolkit:1"}
# What is run everywhere: a dynamic program, like most of what people run.
PROGRAM = "/bin/true"
FILES = 200  # in workspace and toolkit each, so that they are trees and not empty


Trees = dict[str, pathlib.Path]  # kind -> directory


@dataclasses.dataclass
class Layers:
    """In the store of one dsecd."""
    blobs: list[str]         # EROFS images, bottom first
    references: list[str]    # names, bottom first


def _libraries(program: str) -> list[str]:
    """Everything a dynamic program is loaded with, by the loader's own word."""
    text = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return re.findall(r"(/\S+) \(0x", text)


def _make_base(root: pathlib.Path) -> None:
    for directory in ["bin", "etc", "root", "tmp", "usr", "var"]:
        (root / directory).mkdir(parents=True)
    shutil.copy(shutil.which("busybox"), root / "bin" / "busybox")
    for applet in ["sh", "cat", "echo", "ls"]:
        (root / "bin" / applet).symlink_to("busybox")
    (root / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (root / "etc" / "group").write_text("root:x:0:\n")
    for file in [PROGRAM, *_libraries(PROGRAM)]:
        to = root / file.lstrip("/")
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, to)


def _make_files(root: pathlib.Path, below: str) -> None:
    directory = root / below
    directory.mkdir(parents=True)
    for i in range(FILES):
        (directory / f"file{i}").write_text(f"{below} {i}\n" * 20)


def make(scratch: pathlib.Path) -> Trees:
    trees = {kind: scratch / kind for kind in NAMES}
    _make_base(trees["base"])
    _make_files(trees["workspace"], "srv/work")
    _make_files(trees["toolkit"], "opt/tool")
    return trees


def add(dsecd: str, state: pathlib.Path, trees: Trees) -> Layers:
    blobs = []
    for kind, reference in NAMES.items():
        done = subprocess.run([dsecd, "image", "import", reference, str(trees[kind]), "--kind", kind, "--state",
                               str(state)], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            raise Unable(f"dsecd image import failed: {done.stderr}")
        name, tag = reference.split(":")
        manifest = json.loads((state / "images" / "manifests" / kind / f"{name}@{tag}.json").read_text())
        blobs.append(str(state / "images" / "blobs" / "sha256" / f"{manifest['digest']}.erofs"))
    return Layers(blobs, list(NAMES.values()))

"""The examples in README and docs that are marked for it run as they stand.

A marked example is a fenced ```python or ```console block after a comment line: `<!-- run -->`, or
`<!-- run: needs NAME:TAG … -->` with the images it takes. A console block is run by bash; `dsec`
and `dsecd` are this tree's. One that ends the daemon is marked `run alone` and has its own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import images
import pytest
from conftest import serve
from daemon import ROOT, Daemon, binary

ONE_PROCESS = "the examples start and stop one process"

SOURCES = [
    ROOT / "README.md",
    ROOT / "sdk" / "python" / "README.md",
    *(ROOT / "docs").rglob("*.md"),
]
BLOCK = re.compile(
    r"^<!-- run(?P<alone> alone)?(?:: needs (?P<needs>[^>]*?))? -->\n+"
    r"```(?P<language>python|console)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Example:
    name: str
    language: str
    code: str
    needs: tuple[str, ...]
    alone: bool


def examples() -> list[Example]:
    found = []
    for file in SOURCES:
        text = file.read_text() if file.exists() else ""
        for match in BLOCK.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            needs = tuple((match["needs"] or "").replace(",", " ").split())
            name = f"{file.relative_to(ROOT)}:{line}"
            found.append(
                Example(name, match["language"], match["code"], needs, bool(match["alone"]))
            )
    return found


def borrow(daemon: Daemon) -> None:
    if (images.QUICKSTART_STATE / "images").is_dir():
        daemon.borrow_images(images.QUICKSTART_STATE)


@pytest.fixture(scope="module")
def with_images(tiny_tree: Path) -> Iterator[Daemon]:
    def prepare(daemon: Daemon) -> None:
        borrow(daemon)
        daemon.image_import(images.TINY, tiny_tree, "base")

    yield from serve("docs", prepare)


@pytest.fixture
def alone() -> Iterator[Daemon]:
    yield from serve("docs-own", borrow)


def test_there_are_examples_and_none_is_marked_in_vain():
    assert len(examples()) >= 2
    for file in SOURCES:
        text = file.read_text() if file.exists() else ""
        assert len(re.findall(r"^<!-- run", text, re.MULTILINE)) == len(BLOCK.findall(text)), file


def run(example: Example, daemon: Daemon, programs: Path) -> None:
    kinds = ("base", "workspace", "toolkit")
    for reference in example.needs:
        why = [images.missing_images([(kind, reference)]) for kind in kinds]
        if reference != images.TINY and all(why):
            pytest.skip(why[0])
    serving = f'--config "{daemon.config}" --instance {daemon.instance} --port {daemon.port}'
    for name, text in (
        ("dsec", f'exec "{sys.executable}" -m libdsec "$@"'),
        ("dsecd", f'[ "$1" = serve ] && set -- "$@" {serving}\nexec "{binary()}" "$@"'),
    ):
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    if example.language == "python":
        command = [sys.executable, "-c", example.code]
    else:
        code = example.code.replace("build/venv/bin/dsec", "dsec")
        command = ["bash", "-euo", "pipefail", "-c", code]
    done = subprocess.run(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100,
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "TMPDIR": str(programs)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("example", [e for e in examples() if not e.alone], ids=lambda e: e.name)
def test_an_example_of_the_docs_runs(example: Example, with_images: Daemon, tmp_path: Path):
    run(example, with_images, tmp_path)


@pytest.mark.parametrize("example", [e for e in examples() if e.alone], ids=lambda e: e.name)
def test_an_example_that_ends_the_daemon_runs(example: Example, alone: Daemon, tmp_path: Path):
    run(example, alone, tmp_path)

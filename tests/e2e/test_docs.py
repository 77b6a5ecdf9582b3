"""The examples in README and docs that are marked for it run as they stand.

A marked example is a fenced ```python or ```console block after a comment line: `<!-- run -->`, or
`<!-- run: needs NAME:TAG … -->` with the images it takes. A console block is run by bash; its
`dsec` is this tree's.
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
from daemon import ROOT, Daemon

SOURCES = [
    ROOT / "README.md",
    ROOT / "sdk" / "python" / "README.md",
    *(ROOT / "docs").rglob("*.md"),
]
BLOCK = re.compile(
    r"^<!-- run(?:: needs (?P<needs>[^>]*?))? -->\n+"
    r"```(?P<language>python|console)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Example:
    name: str
    language: str
    code: str
    needs: tuple[str, ...]


def examples() -> list[Example]:
    found = []
    for file in SOURCES:
        text = file.read_text() if file.exists() else ""
        for match in BLOCK.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            needs = tuple((match["needs"] or "").replace(",", " ").split())
            name = f"{file.relative_to(ROOT)}:{line}"
            found.append(Example(name, match["language"], match["code"], needs))
    return found


@pytest.fixture(scope="module")
def with_images(tiny_tree: Path) -> Iterator[Daemon]:
    def prepare(daemon: Daemon) -> None:
        if (images.QUICKSTART_STATE / "images").is_dir():
            daemon.borrow_images(images.QUICKSTART_STATE)
        daemon.image_import(images.TINY, tiny_tree, "base")

    yield from serve("docs", prepare)


def test_there_are_examples_and_none_is_marked_in_vain():
    assert len(examples()) >= 2
    for file in SOURCES:
        text = file.read_text() if file.exists() else ""
        assert len(re.findall(r"^<!-- run", text, re.MULTILINE)) == len(BLOCK.findall(text)), file


@pytest.mark.parametrize("example", examples(), ids=lambda e: e.name)
def test_an_example_of_the_docs_runs(example: Example, with_images: Daemon, tmp_path: Path):
    kinds = ("base", "workspace", "toolkit")
    for reference in example.needs:
        why = [images.missing_images([(kind, reference)]) for kind in kinds]
        if reference != images.TINY and all(why):
            pytest.skip(why[0])
    wrapper = tmp_path / "dsec"
    wrapper.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m libdsec "$@"\n')
    wrapper.chmod(0o755)
    if example.language == "python":
        command = [sys.executable, "-c", example.code]
    else:
        code = example.code.replace("build/venv/bin/dsec", "dsec")
        command = ["bash", "-euo", "pipefail", "-c", code]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=100,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr

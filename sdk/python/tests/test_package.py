"""The package as users get it: installed from a clean copy of the tree, as wheel and from a source
archive.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
CHECK = (
    "import libdsec, pathlib; from libdsec import _codec; "
    "file = pathlib.Path(libdsec.__file__).with_name('client.capnp'); "
    "assert file.is_file() and not file.is_symlink(), file; "
    "assert (file.parent / 'py.typed').is_file(); print(libdsec.__version__)"
)


def call(*command: str | Path, cwd: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=environment, capture_output=True, text=True,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the package is built from, without the leftovers of work in the tree."""
    copy = tmp_path_factory.mktemp("clean")
    shutil.copytree(
        ROOT / "sdk" / "python", copy / "sdk" / "python", symlinks=True,
        ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", ".*cache", "dist"),
    )  # fmt: skip
    (copy / "src" / "proto").mkdir(parents=True)
    shutil.copy(ROOT / "src" / "proto" / "client.capnp", copy / "src" / "proto")
    return copy


@pytest.fixture(scope="module")
def fresh(clean: Path) -> Path:
    """A new virtual environment; skips when no package index can be reached from here."""
    venv = clean / "venv"
    call(sys.executable, "-m", "venv", venv, cwd=clean)
    probe = subprocess.run(
        [venv / "bin" / "pip", "download", "-q", "--no-deps", "-d", clean / "probe", "hatchling"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    if probe.returncode != 0:
        pytest.skip(f"no package index: {probe.stderr.strip()[-200:]}")
    return venv


@pytest.mark.usefixtures("_long")
def test_pip_installs_it_from_a_clean_copy_with_its_schema(clean: Path, fresh: Path):
    call(fresh / "bin" / "pip", "install", "-q", "./sdk/python", cwd=clean)
    assert call(fresh / "bin" / "python", "-c", CHECK, cwd=Path("/")) == "0.1.0\n"
    assert "examples:" in call(fresh / "bin" / "dsec", "--help", cwd=Path("/"))


@pytest.mark.usefixtures("_long")
def test_a_source_archive_holds_the_schema_itself(clean: Path, fresh: Path):
    call(fresh / "bin" / "pip", "install", "-q", "hatchling", cwd=clean)
    call(
        fresh / "bin" / "hatchling", "build", "-t", "sdist", "-d", clean / "dist",
        cwd=clean / "sdk" / "python",
    )  # fmt: skip
    with tarfile.open(next((clean / "dist").glob("*.tar.gz"))) as archive:
        members = [m for m in archive.getmembers() if m.name.endswith("libdsec/client.capnp")]
        assert [m.isreg() for m in members] == [True]
        schema = archive.extractfile(members[0])
        assert schema is not None
        assert schema.read() == (ROOT / "src" / "proto" / "client.capnp").read_bytes()

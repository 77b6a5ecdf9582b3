"""What must stand before measuring: built programs, peers, trees to make image layers of. Groups start a dsecd of
their own in it. All of it hangs under one temporary directory and one instance name."""
import contextlib
import dataclasses
import itertools
import os
import pathlib
import shutil
import subprocess
from collections.abc import Iterator

from runner import images, programs
from runner.errors import Unable
from runner.rows import Series
from runner.worker import Worker

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "release"
PYTHON = str(ROOT / "build" / "venv" / "bin" / "python")
PROGRAMS = ["dsecd", "measure", "floor", "ws_echo", "tricks", "null_libc", "null_bare"]
# Debian's name of each program that is measured beside us, or needed to make images.
PACKAGES = {"bwrap": "bubblewrap", "runc": "runc", "mkfs.erofs": "erofs-utils", "busybox": "busybox-static", "umoci": "umoci"}


@dataclasses.dataclass
class Workshop:
    quick: bool
    scratch: pathlib.Path
    trees: images.Trees
    _numbers: Iterator[int] = dataclasses.field(default_factory=itertools.count)

    def program(self, name: str) -> str:
        return str(BUILD / "src" / name) if name == "dsecd" else str(BUILD / "bench" / name)

    def worker(self, **node: object) -> Worker:
        """A dsecd with these keys of its configuration's [node]."""
        number = next(self._numbers)
        return self._worker(number, node)

    def _worker(self, number: int, node: dict[str, object], role: str = "all", peer: str = "") -> Worker:
        return Worker(self.program("dsecd"), self.scratch / f"worker{number}", f"{self.scratch.name}-{number}",
                      self.trees, node, number, role, peer)

    @contextlib.contextmanager
    def cluster(self) -> Iterator[tuple[Worker, Worker]]:
        """A coordinator, and a worker of it."""
        with self._worker(next(self._numbers), {}, "coordinator") as coordinator:
            peer = (f'[peer]\ncoordinators = ["127.0.0.1:{coordinator.port}"]\n'
                    f'secret_file = "{coordinator.state / "peer-secret"}"\n')
            with self._worker(next(self._numbers), {}, "worker", peer) as worker:
                yield coordinator, worker

    def disk(self, name: str) -> str:
        """A new directory for the floor's writable layers."""
        made = self.scratch / f"{name}{next(self._numbers)}"
        made.mkdir()
        return str(made)

    def samples(self, arguments: list[str], into: Series) -> None:
        """Runs a program that prints one figure per line; one block of the series."""
        figures = programs.run(arguments)
        if not figures.all(""):
            raise Unable(f"{' '.join(arguments)} measured nothing: {figures.failed} attempts failed")
        into.failed += figures.failed
        into.blocks.append(figures.all(""))


def _run(arguments: list[str], what: str, **options) -> str:
    done = subprocess.run(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, **options)
    if done.returncode != 0:
        raise Unable(f"{what} failed:\n{done.stdout[-3000:]}")
    return done.stdout


def _install() -> None:
    _run([str(ROOT / "scripts" / "setup"), "run"], "scripts/setup run")
    missing = [package for program, package in PACKAGES.items() if shutil.which(program) is None]
    if missing:
        print(f"installing {' '.join(missing)}", flush=True)
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        _run(["apt-get", "update", "-qq"], "apt-get update", env=environment)
        _run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing], "apt-get install",
             env=environment)


def _build() -> None:
    print("building (release)", flush=True)
    _run(["cmake", "--preset", "release"], "cmake", cwd=ROOT)
    _run(["cmake", "--build", str(BUILD), "--target", *PROGRAMS], "the build", cwd=ROOT)


@contextlib.contextmanager
def open_workshop(quick: bool):
    _install()
    _build()
    scratch = pathlib.Path("/var/tmp") / f"dsec-bench-{os.getpid()}"
    scratch.mkdir(mode=0o700)
    try:
        yield Workshop(quick, scratch, images.make(scratch / "images"))
    finally:
        shutil.rmtree(scratch)

"""What must stand before measuring: built programs, peers, image layers, and a dsecd of our own. All of it hangs under
one temporary directory and one instance name, is taken down at the end, and is then looked for: a leak is an error."""
import contextlib
import dataclasses
import os
import pathlib
import shutil
import signal
import subprocess
import time

from runner import images
from runner.errors import Unable
from runner.rows import Series

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "release"
PROGRAMS = ["dsecd", "measure", "floor", "ws_echo"]
# Debian's name of each program that is measured beside us, or needed to make images.
PACKAGES = {"bwrap": "bubblewrap", "runc": "runc", "mkfs.erofs": "erofs-utils", "busybox": "busybox-static"}
START_SECONDS = 60
STOP_SECONDS = 90  # longer than dsecd gives itself
CONFIG = """\
[gateway]
port = 0

[node]
instance = "{instance}"
uid_base = 1300000000
aether_uid_base = 1250000000
"""


@dataclasses.dataclass
class Workshop:
    quick: bool
    scratch: pathlib.Path
    layers: images.Layers
    url: str
    key: str

    def program(self, name: str) -> str:
        return str(BUILD / "src" / name) if name == "dsecd" else str(BUILD / "bench" / name)

    def samples(self, arguments: list[str], into: Series) -> None:
        """Runs a program that prints one figure per line; one block of the series."""
        done = subprocess.run(arguments, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
        block = []
        for line in done.stdout.splitlines():
            if line.startswith("failed "):
                into.failed += int(line.split()[1])
            else:
                block.append(float(line))
        if not block:
            raise Unable(f"{' '.join(arguments)} measured nothing: {done.stderr.strip()[-500:]}")
        if done.stderr:
            print(done.stderr.strip()[-500:], flush=True)
        if done.returncode != 0 and into.failed == 0:
            into.failed += 1
        into.blocks.append(block)


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


def _start(dsecd: str, state: pathlib.Path, config: pathlib.Path) -> tuple[subprocess.Popen, str, str]:
    log = (state / "dsecd.log").open("wb")
    daemon = subprocess.Popen([dsecd, "serve", "--state", str(state), "--config", str(config)],
                              stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    deadline = time.monotonic() + START_SECONDS
    while not (state / "url").exists():
        if daemon.poll() is not None or time.monotonic() > deadline:
            daemon.kill()
            raise Unable("dsecd did not start:\n" + (state / "dsecd.log").read_text()[-2000:])
        time.sleep(0.02)
    return daemon, (state / "url").read_text().strip(), (state / "api-key").read_text().strip()


def _stop(daemon: subprocess.Popen) -> None:
    daemon.send_signal(signal.SIGTERM)
    try:
        daemon.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        daemon.kill()
        raise Unable(f"dsecd did not stop within {STOP_SECONDS} s")


def _leaks(instance: str, scratch: pathlib.Path) -> list[str]:
    found = [str(p) for p in pathlib.Path("/sys/fs/cgroup").glob(f"*/{instance}*")]
    found += [str(p) for p in pathlib.Path("/sys/fs/cgroup").glob(f"{instance}*")]
    found += [line.split()[4] for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
              if str(scratch) in line]
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(scratch).encode() in (process / "cmdline").read_bytes():
                found.append(f"process {process.name}")
    return found


@contextlib.contextmanager
def open_workshop(quick: bool):
    _install()
    _build()
    instance = f"dsec-bench-{os.getpid()}"
    scratch = pathlib.Path("/var/tmp") / instance
    scratch.mkdir(mode=0o700)
    try:
        state = scratch / "state"
        state.mkdir(mode=0o700)
        config = scratch / "dsecd.toml"
        config.write_text(CONFIG.format(instance=instance))
        dsecd = str(BUILD / "src" / "dsecd")
        layers = images.make(dsecd, state, scratch / "images")
        daemon, url, key = _start(dsecd, state, config)
        try:
            yield Workshop(quick, scratch, layers, url, key)
        finally:
            _stop(daemon)
        if leaks := _leaks(instance, scratch):
            raise Unable("left behind: " + ", ".join(leaks))
    finally:
        shutil.rmtree(scratch)

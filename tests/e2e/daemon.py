"""A real dsecd for the tests: its own state directory, its own instance name, stopped and checked
for leaks.

Nothing here knows how dsecd works inside: it is started, found and stopped as a user would.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 60
STOP_SECONDS = 90
SLOT_POOL = 8  # node.slot_pool of a daemon without a configuration file


def binary() -> Path:
    """The dsecd under test: $DSECD, else the dev build's."""
    return Path(os.environ.get("DSECD") or ROOT / "build" / "dev" / "src" / "dsecd")


def leak_check() -> Path:
    """The program beside it that looks for what an instance has left behind."""
    return binary().parents[1] / "tests" / "leak_check"


class Daemon:
    """`dsecd serve` on a free port of loopback."""

    def __init__(self, name: str) -> None:
        self.instance = f"e2e-{os.getpid()}-{name}"
        self.state = Path(tempfile.mkdtemp(prefix="dsec-e2e-"))
        self.log = self.state.with_suffix(".log")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def environment(self) -> dict[str, str]:
        """What makes libdsec find this daemon."""
        kept = {k: v for k, v in os.environ.items() if k not in ("DSEC_URL", "DSEC_API_KEY")}
        return {**kept, "DSEC_STATE": str(self.state)}

    def start(self) -> None:
        (self.state / "url").unlink(missing_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    binary(), "serve", "--role=all", "--state", self.state,
                    "--instance", self.instance, "--port", "0",
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + START_SECONDS
        while not (self.state / "url").exists():
            code = self._process.poll()
            assert code is None, f"dsecd ended with {code} at start: {self.tail()}"
            assert time.monotonic() < deadline, f"dsecd is not ready: {self.tail()}"
            time.sleep(0.01)

    def stop(self) -> None:
        """SIGTERM, as scripts/quickstart and an init system do; killed only when that fails."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"dsecd did not stop in {STOP_SECONDS} s: {self.tail()}") from None
        assert code == 0, f"dsecd ended with {code}: {self.tail()}"

    def kill(self) -> None:
        """SIGKILL: what a crash leaves behind."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def leaks(self, *more: str) -> str:
        """What of the instance is on the host, a line each. Records of ended sandboxes may stay."""
        done = subprocess.run(
            [leak_check(), self.instance, self.state, "--records", *more],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode in (0, 1), done.stdout + done.stderr
        return done.stdout

    def live_leaks(self) -> str:
        """The same while it runs without a sandbox: what there is beyond its ready slots."""
        return self.leaks("--live", str(SLOT_POOL))

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def remove(self) -> None:
        """Deletes the state directory, and ends what a failed test has left running."""
        for pid in re.findall(r"^process (\d+)", self.leaks(), re.MULTILINE):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        shutil.rmtree(self.state, ignore_errors=True)
        self.log.unlink(missing_ok=True)

    def tail(self, lines: int = 20) -> str:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def image_import(self, name: str, source: Path | str, kind: str, *extra: str) -> None:
        done = subprocess.run(
            [
                binary(), "image", "import", name, source, "--kind", kind,
                "--state", self.state, *extra,
            ],
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr

    def borrow_images(self, other: Path) -> None:
        """The images of another state directory, by hard links where that goes."""

        def link(source: str, target: str) -> None:
            try:
                os.link(source, target)
            except OSError:
                shutil.copy2(source, target)

        shutil.copytree(
            other / "images", self.state / "images", copy_function=link, dirs_exist_ok=True,
            ignore=shutil.ignore_patterns("tmp"),
        )  # fmt: skip

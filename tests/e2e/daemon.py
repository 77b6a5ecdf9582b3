"""A real dsecd for the tests: its own state directory, its own instance name, stopped and checked
for leaks.

Nothing here knows how dsecd works inside: it is started, found and stopped as a user would.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import host
import tomllib

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 60
STOP_SECONDS = 90


def binary() -> Path:
    """The dsecd under test: $DSECD, else the dev build's."""
    return Path(os.environ.get("DSECD") or ROOT / "build" / "dev" / "src" / "dsecd")


def leak_check() -> Path:
    """The program beside it that looks for what an instance has left behind."""
    return binary().parents[1] / "tests" / "leak_check"


class Daemon:
    """`dsecd serve` on a free port of loopback."""

    def __init__(
        self,
        name: str,
        config: str = "",
        environment: dict[str, str] | None = None,
        program: Path | None = None,
        place: Path | None = None,
        role: str = "all",
    ):
        """`config` is TOML for `--config`; `environment` is the daemon's alone; `program` is
        another dsecd than the one under test; its state directory is made in `place`.
        """
        self.role = role
        self.instance = f"e2e-{os.getpid()}-{name}"
        self.state = Path(tempfile.mkdtemp(prefix="dsec-e2e-", dir=place))
        self.log = self.state.with_suffix(".log")
        self.config = self.state.with_suffix(".toml")
        self.config.write_text(config)
        self.own_environment = environment or {}
        self.program = program or binary()
        self.wrapper: list[str] = []
        """Words of a command that runs it, such as prlimit(1)."""
        self.port = host.free_port()
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
        before = self._published()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *self.wrapper, self.program, "serve", f"--role={self.role}",
                    "--config", self.config, "--state", self.state,
                    "--instance", self.instance, "--port", str(self.port),
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, **self.own_environment},
            )  # fmt: skip
        # Clients of a worker go to its coordinator: it publishes no address.
        is_up = self.ready if self.role == "worker" else lambda: self._published() not in (None, before)
        host.eventually(lambda: is_up() or not self.running, START_SECONDS)
        if is_up():
            return
        code = self._process.poll()
        assert code is None, f"dsecd ended with {code} at start: {self.tail()}"
        raise AssertionError(f"dsecd is not ready: {self.tail()}")

    def _published(self) -> tuple[int, int] | None:
        """Which file holds the address, if any: each start puts another one in its place, or gives it
        another time when the address is the same.
        """
        try:
            status = (self.state / "url").stat()
        except FileNotFoundError:
            return None
        return status.st_ino, status.st_mtime_ns

    def ready(self) -> bool:
        """What /readyz says."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.get("/readyz")[0] == 200
        return False

    def get(self, path: str) -> tuple[int, dict[str, Any]]:
        """Status and JSON of a plain GET."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def stop(self) -> None:
        """Ends it with every sandbox, as `dsecd stop --all` does; what a killed one has left goes
        as well.
        """
        if self.running:
            self._end(signal.SIGUSR1)
        elif (self.state / "instance").exists():
            self.dsecd("stop", "--all")

    def leave(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Ends it as an init system does, and as before an upgrade: its sandboxes run on."""
        self._end(how)

    def dsecd(self, *arguments: str, code: int = 0) -> str:
        """Runs a subcommand on its state directory; what it says."""
        done = subprocess.run(
            [self.program, *arguments, "--config", self.config, "--state", self.state],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=STOP_SECONDS + 30,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        assert process is not None
        process.send_signal(how)
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

    def restart(self) -> None:
        """Killed and started again at once."""
        self.kill()
        self.start()

    @property
    def launcher(self) -> int:
        """The pid of the process that holds its sandboxes; 0 when there is none."""
        return host.launcher_of(self.state)

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
        pool = tomllib.loads(self.config.read_text()).get("node", {}).get("slot_pool", 8)
        return self.leaks("--live", str(pool))

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def remove(self) -> None:
        """Deletes the state directory, and ends what a failed test has left running."""
        for pid in re.findall(r"^process (\d+)", self.leaks(), re.MULTILINE):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        shutil.rmtree(self.state, ignore_errors=True)
        for file in (self.log, self.config):
            file.unlink(missing_ok=True)

    def tail(self, lines: int = 20) -> str:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def image_import(self, name: str, source: Path | str, kind: str, *extra: str) -> None:
        done = subprocess.run(
            [
                self.program, "image", "import", name, source, "--kind", kind,
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

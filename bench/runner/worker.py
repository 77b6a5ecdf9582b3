"""A dsecd of a group's own: started on a free port with its own state directory, instance name and image layers;
stopped with all its sandboxes, and then looked for: a leak is an error."""
import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import time
import urllib.request

from runner import images, memory
from runner.errors import Unable

START_SECONDS = 60
STOP_SECONDS = 90  # longer than dsecd gives itself
UNNOTICED_NAMESPACES = 64  # see memory.net_namespaces
CONFIG = """\
[gateway]
port = {port}

[node]
instance = "{instance}"
uid_base = {uids}
aether_uid_base = {aether_uids}
"""
FIRST_UIDS, UIDS = 1_300_000_000, 300_000_000  # of workers that are there at the same time
FIRST_AETHER_UIDS, AETHER_UIDS = 1_250_000_000, 100_000
MOST_AT_ONCE = 8


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Worker:
    """Whoever makes one must close() it; `with` does."""

    def __init__(self, dsecd: str, scratch: pathlib.Path, instance: str, trees: images.Trees, node: dict[str, object],
                 number: int = 0, role: str = "all", peer: str = ""):
        """`number` tells it from others that are there at the same time; `peer` is the section of that name."""
        self._dsecd = dsecd
        self.instance = instance
        self.state = scratch / "state"
        self._config = scratch / "dsecd.toml"
        self._log = scratch / "dsecd.log"
        self._process: subprocess.Popen | None = None
        self.ready_slots = int(node.get("slot_pool", 8))
        self.state.mkdir(mode=0o700, parents=True)
        self._role = role
        self.port = _free_port()
        text = CONFIG.format(port=self.port, instance=instance, uids=FIRST_UIDS + number % MOST_AT_ONCE * UIDS,
                             aether_uids=FIRST_AETHER_UIDS + number % MOST_AT_ONCE * AETHER_UIDS)
        self._config.write_text(text + "".join(f"{key} = {value}\n" for key, value in node.items()) + peer)
        if role != "coordinator":
            self.layers = images.add(dsecd, self.state, trees)
        self._namespaces = memory.net_namespaces()
        self.start()
        self.await_served()

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    @property
    def url(self) -> str:
        return (self.state / "url").read_text().strip()

    @property
    def where(self) -> list[str]:
        """URL and key, as the measuring programs take them."""
        return [self.url, (self.state / "api-key").read_text().strip()]

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def launcher(self) -> int:
        """Its pid."""
        wanted = b"DSEC_STATE=" + str(self.state).encode()
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if wanted in (process / "environ").read_bytes().split(b"\0") and int(process.name) != self.pid:
                    return int(process.name)
        raise Unable("dsecd has no launcher")

    def start(self) -> None:
        """Does not wait."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._dsecd, "serve", f"--role={self._role}", "--state", str(self.state), "--config", str(self._config)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def await_served(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not self._serves():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._process.kill()
                raise Unable("dsecd did not start:\n" + self._log.read_text()[-2000:])
            time.sleep(0.02)

    def _serves(self) -> bool:
        if self._role != "worker":
            return (self.state / "url").exists()
        # It is healthy once its coordinator has it.
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz") as answer:
            return answer.status == 200
        return False

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.wait()

    def groups(self) -> int:
        """Slots that exist, ready ones too."""
        root = pathlib.Path("/sys/fs/cgroup")
        found = [*root.glob(f"*/{self.instance}/[0-9]*"), *root.glob(f"{self.instance}/[0-9]*")]
        return len({path.name for path in found})

    def await_clean(self, seconds: float) -> bool:
        """Until nothing of any sandbox is left: no groups but those of ready slots, no files that wait for deletion,
        no network namespace that the kernel still takes down."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            # The cheap ones first: looking must not take the time that is measured.
            if not any((self.state / "trash").iterdir()) and \
               memory.net_namespaces() <= self._namespaces + self.ready_slots + UNNOTICED_NAMESPACES and \
               self.groups() <= self.ready_slots:
                return True
            time.sleep(0.05)
        return False

    def close(self) -> None:
        stopped = subprocess.run([self._dsecd, "stop", "--all", "--state", str(self.state)], stdin=subprocess.DEVNULL,
                                 capture_output=True, text=True, timeout=STOP_SECONDS + 10)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGKILL)
            raise Unable(f"dsecd did not stop within {STOP_SECONDS} s") from None
        if stopped.returncode != 0:
            raise Unable(f"dsecd stop --all failed: {stopped.stderr}")
        if leaks := self._leaks():
            raise Unable("left behind: " + ", ".join(leaks))

    def _leaks(self) -> list[str]:
        found = [str(path) for path in pathlib.Path("/sys/fs/cgroup").glob(f"*/{self.instance}*")]
        found += [str(path) for path in pathlib.Path("/sys/fs/cgroup").glob(f"{self.instance}*")]
        state = str(self.state).encode()
        found += [line.split()[4] for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
                  if str(self.state) in line]
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            if int(process.name) == os.getpid():
                continue
            with contextlib.suppress(OSError):
                if state in (process / "cmdline").read_bytes() or state in (process / "environ").read_bytes():
                    found.append(f"process {process.name}")
        return found

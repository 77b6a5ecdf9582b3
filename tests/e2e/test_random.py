"""Random operations on the real kernel while dsecd and its launcher are killed at random moments:
nothing is lost and nothing is done twice. Seed, length and kills are printed; $DSEC_SEED repeats
one.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from conftest import FULL
from daemon import Daemon
from host import eventually
from images import TINY

from libdsec import Command, Sandbox

OPERATIONS = 1000 if FULL else 100  # at least; until all have died often enough
KILLS = OPERATIONS // 50
USERS = 4
SECONDS = 60  # a command's at most; whatever dies meanwhile
SLOWEST = 20  # of one operation, several deaths included


@dataclass
class Expected:
    """What one sandbox must be like."""

    sandbox: Sandbox
    files: dict[str, bytes] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)  # ids of commands that have begun
    running: dict[str, Command] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)  # id: output


class User:
    """One client's thread with sandboxes of its own, so that what must be is known."""

    def __init__(self, number: int, seed: int) -> None:
        self.choose = random.Random(seed * 100 + number)
        self.name = f"u{number}"
        self.boxes: list[Expected] = []
        self.count = 0
        self.failure: BaseException | None = None
        self.slowest: tuple[float, str] = (0, "")

    def run(self, operations: int, killed_enough: threading.Event) -> None:
        try:
            while self.count < operations or not killed_enough.is_set():
                self.step()
            for box in self.boxes:
                self.timed(self.check, box)
                self.timed(box.sandbox.stop)
        except BaseException as error:  # noqa: BLE001 - told to the test's own thread
            self.failure = error

    def step(self) -> None:
        self.count += 1
        if not self.boxes or (len(self.boxes) < 6 and self.choose.random() < 0.1):
            return self.timed(self.create)
        acts = [self.execute] * 4 + [self.begin, self.end, self.kill, self.write, self.read]
        act = self.choose.choice([*acts, self.look_back, self.stop])
        return self.timed(act, self.choose.choice(self.boxes))

    def timed(self, act: Callable[..., object], *on: Expected) -> None:
        began = time.monotonic()
        act(*on)
        self.slowest = max(self.slowest, (time.monotonic() - began, act.__name__))

    def create(self) -> None:
        sandbox = Sandbox.create(TINY, memory_mb=64, detached=True, labels={"user": self.name})
        self.boxes.append(Expected(sandbox))

    def next_id(self, box: Expected) -> str:
        command_id = f"{self.name}-{self.count}"
        box.ran.append(command_id)
        return command_id

    def execute(self, box: Expected) -> None:
        size = self.choose.choice([0, 10, 5000, 300_000])
        command_id = self.next_id(box)
        script = f"echo {command_id} >>/ran; head -c {size} /dev/zero | tr '\\0' x; echo {command_id}"
        ended = box.sandbox.commands.start(script, command_id=command_id).wait(SECONDS)
        assert (ended.exit_code, ended.stdout) == (0, "x" * size + command_id + "\n")
        box.ended[command_id] = ended.stdout

    def begin(self, box: Expected) -> None:
        command_id = self.next_id(box)
        script = f"echo {command_id} >>/ran; while [ ! -e /{command_id} ]; do sleep 0.05; done; echo {command_id}"
        box.running[command_id] = box.sandbox.commands.start(script, command_id=command_id)

    def end(self, box: Expected) -> None:
        if not box.running:
            return
        command_id, command = box.running.popitem()
        box.sandbox.files.write(f"/{command_id}", b"")
        ended = command.wait(SECONDS)
        assert (ended.exit_code, ended.stdout) == (0, command_id + "\n")
        box.ended[command_id] = ended.stdout

    def kill(self, box: Expected) -> None:
        if not box.running:
            return
        command_id, command = box.running.popitem()
        assert command.kill().signal == signal.SIGKILL
        box.ended[command_id] = ""

    def write(self, box: Expected) -> None:
        path = f"/f{self.choose.randrange(4)}"
        box.files[path] = self.choose.randbytes(self.choose.choice([0, 100, 70_000, 9_000_000]))
        box.sandbox.files.write(path, box.files[path])

    def read(self, box: Expected) -> None:
        for path, content in box.files.items():
            assert box.sandbox.files.read(path) == content, path

    def look_back(self, box: Expected) -> None:
        if not box.ended:
            return
        command_id = self.choose.choice(list(box.ended))
        ended = Sandbox.connect(box.sandbox.id).commands.get(command_id).wait(SECONDS)
        assert ended.stdout == box.ended[command_id]

    def stop(self, box: Expected) -> None:
        if self.choose.random() < 0.7:
            return
        self.check(box)
        assert not box.sandbox.stop().alive
        self.boxes.remove(box)
        self.look_back(box)  # until retention, also of one that is gone

    def check(self, box: Expected) -> None:
        """Every command ran, and ran once."""
        ran = box.sandbox.files.read("/ran").split() if box.ran else []
        # A killed one may not have come to its first line.
        assert len(ran) == len(set(ran)), f"{box.sandbox.id}: run twice: {ran}"
        sure = [i for i in box.ran if box.ended.get(i) != ""]
        assert {i.encode() for i in sure} <= set(ran) <= {i.encode() for i in box.ran}
        self.read(box)


def begun(users: list[User]) -> int:
    return sum(u.count for u in users)


def launchers(daemon: Daemon) -> int:
    """How many were started and told of the sandboxes that live."""
    return daemon.log.read_text().count('"event":"launcher_started","pid"')


def end_something(choose: random.Random, daemon: Daemon) -> str:
    victim = choose.choice(["dsecd", "dsecd", "launcher"])
    before = launchers(daemon)
    if victim == "dsecd":
        daemon.restart()
    elif daemon.launcher:
        os.kill(daemon.launcher, signal.SIGKILL)
        # The next one has to have been told of all: both dead in one moment is another promise.
        assert eventually(lambda: launchers(daemon) > before), daemon.tail()
    return victim


@pytest.mark.daemon(config="[node]\nslot_pool = 4\n")
def test_nothing_is_lost_or_done_twice_when_anything_dies(own: Daemon) -> None:
    seed = int(os.environ.get("DSEC_SEED") or random.SystemRandom().randrange(1 << 32))
    choose = random.Random(seed)
    assert Sandbox.list() == []  # a client that was connected once waits for the next daemon
    users = [User(n, seed) for n in range(USERS)]
    killed_enough = threading.Event()
    how_long = (OPERATIONS // USERS, killed_enough)
    threads = [threading.Thread(target=u.run, args=how_long, name=u.name) for u in users]
    for thread in threads:
        thread.start()
    killed: dict[str, int] = {"dsecd": 0, "launcher": 0}
    try:
        while any(t.is_alive() for t in threads):
            # Polled, so that it is any moment of an operation.
            goal = begun(users) + choose.randrange(6)
            eventually(lambda goal=goal: begun(users) >= goal, 0.5)
            killed[end_something(choose, own)] += 1
            if sum(killed.values()) >= KILLS:
                killed_enough.set()
    finally:
        killed_enough.set()
        for thread in threads:
            thread.join()
    slowest = max(u.slowest for u in users)
    print(f"seed {seed}, {begun(users)} operations, killed {killed}, slowest {slowest}")
    for user in users:
        if user.failure is not None:
            raise AssertionError(f"seed {seed}, after {user.count} operations") from user.failure
    assert slowest[0] < SLOWEST
    assert not [s for s in Sandbox.list() if s.alive]

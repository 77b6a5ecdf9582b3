"""Hundreds of sandboxes by one call: each an answer of its own, none twice, none left."""

from __future__ import annotations

import os
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import host
import pytest
from conftest import ARRANGEMENT, FULL, TINY
from daemon import Daemon, binary

from libdsec import (
    CreateManyError,
    CreateResult,
    DSecContainerRunArgs,
    InternalError,
    Sandbox,
)
from libdsec._loop import loop_thread

CROWD = """
[node]
slot_pool = {pool}
memory_overcommit = 1000.0
memory_reserve_mb = 16
"""
BURST = 1000 if FULL else 100
MANY = 2000 if FULL else 200
# 5 % in all, in early steps and late ones.
POINTS = ",".join(
    f"container.start.{step}=error:{percent}%"
    for step, percent in (("slot", 1), ("limits", 2), ("handshake", 2))
)


def stop_all(sandboxes: list[Sandbox]) -> None:
    with ThreadPoolExecutor(64) as threads:
        list(threads.map(Sandbox.stop, sandboxes))


def uid_of(pid: str) -> str:
    return Path(f"/proc/{pid}/status").read_text().partition("\nUid:")[2].split()[0]


@pytest.mark.C25
@pytest.mark.daemon(config=CROWD.format(pool=BURST // 2))
def test_a_burst_on_a_pool_of_half_its_size_assigns_none_twice_and_makes_no_more(own: Daemon):
    marker = f"25{os.getpid()}"
    results = Sandbox.create_many(BURST, TINY, memory_mb=16)
    sandboxes = [r.unwrap() for r in results]
    assert len({sb.id for sb in sandboxes}) == BURST
    assert {s.id for s in Sandbox.list()} == {sb.id for sb in sandboxes}
    with ThreadPoolExecutor(64) as threads:

        def claim(sb: Sandbox) -> str:
            """What is written in it, if any other has the same one, and then by us."""
            sb.commands.start(["sleep", marker])
            script = f"cat /root/mine 2>/dev/null; echo {sb.id} > /root/mine; hostname"
            return sb.commands.run(script).stdout

        assert list(threads.map(claim, sandboxes)) == [f"{sb.id}\n" for sb in sandboxes]
        found = list(threads.map(lambda sb: sb.files.read("/root/mine"), sandboxes))
    assert found == [f"{sb.id}\n".encode() for sb in sandboxes]
    # Each has a range of users of its own, and there is nothing beside them.
    assert host.eventually(lambda: len(host.alive(marker)) == BURST)
    assert len({uid_of(pid) for pid in host.alive(marker)}) == BURST
    stop_all(sandboxes)


@pytest.mark.C26
@pytest.mark.daemon(config=CROWD.format(pool=8), environment={"DSEC_FAILPOINTS": POINTS})
@pytest.mark.parametrize("killed", [False, True])
def test_many_with_injected_failures_have_an_exact_answer_each(own: Daemon, killed: bool):
    if b"DSEC_FAILPOINTS_SEED" not in binary().read_bytes():
        pytest.skip(f"{binary()} was built without failure points")
    results: list[CreateResult[Sandbox]] = []
    making = threading.Thread(
        target=lambda: results.extend(Sandbox.create_many(MANY, TINY, memory_mb=16, timeout=500))
    )
    making.start()
    if killed:
        for i in range(1, 4):
            assert host.eventually(lambda: len(Sandbox.list()) >= i * MANY // 5, 100)  # noqa: B023
            own.restart()
    making.join()
    assert [r.index for r in results] == list(range(MANY))
    failed = [r.error for r in results if not r.ok]
    assert all(isinstance(e, InternalError) and "failure point" in e.message for e in failed)
    # Each process throws the same dice from its start on; of several each makes few before it is killed.
    least = 0 if killed and ARRANGEMENT == "cluster" else MANY // 100
    assert least <= len(failed) <= MANY // 8, Counter(map(str, failed))
    sandboxes = [r.unwrap() for r in results if r.ok]
    listed = {s.id: s.phase for s in Sandbox.list()}
    assert {i for i, phase in listed.items() if phase == "running"} == {s.id for s in sandboxes}
    assert set(listed.values()) <= {"running", "failed"}
    with ThreadPoolExecutor(64) as threads:
        said = list(threads.map(lambda sb: sb.commands.run(["echo", sb.id]).stdout, sandboxes))
    assert said == [f"{sb.id}\n" for sb in sandboxes]
    stop_all(sandboxes)  # the fixtures look for what is left


def test_too_few_ready_leaves_nothing(daemon: Daemon):
    images = [TINY, "none:1", TINY]
    with pytest.raises(CreateManyError) as caught:
        Sandbox.create_many([DSecContainerRunArgs(i) for i in images], min_ready=3)
    assert [e and e.code for e in caught.value.errors] == [None, "not_found", None]
    assert not [s for s in Sandbox.list() if s.alive]


def test_the_same_key_gives_the_same_sandboxes_from_another_client(daemon: Daemon):
    first = Sandbox.create_many(5, TINY, memory_mb=16, idempotency_key="crowd")
    loop_thread.close()
    second = Sandbox.create_many(5, TINY, memory_mb=16, idempotency_key="crowd")
    assert [r.unwrap().id for r in first] == [r.unwrap().id for r in second]
    stop_all([r.unwrap() for r in first])

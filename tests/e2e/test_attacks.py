"""Attacks by root inside a sandbox: they fail or are bounded, and the neighbours notice nothing."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import host
import pytest
from conftest import FULL, TINY
from daemon import binary

from libdsec import DSecError, Sandbox

SIBLING_COMMANDS = 100 if FULL else 20
RESULT_SECONDS = 5
SLACK = 5


@pytest.fixture
def sibling(daemon) -> Iterator[Sandbox]:
    with Sandbox.create(TINY, memory_mb=64) as sb:
        yield sb


FLOODS = {
    "stop-all": "while :; do kill -STOP -1; done",
    "kill-all": "while :; do kill -9 -1; done",
    "kill-all-children": "for i in 1 2 3 4 5 6 7 8; do (while :; do kill -9 -1; done) & done; wait",
    "fork-bomb": "b() { b | b & }; b; wait; sleep 60",
    "stop-init": "while :; do kill -STOP 1; kill -9 1; kill -TERM 1; done",
}


@pytest.mark.threat_1
@pytest.mark.threat_6
@pytest.mark.parametrize("attack", FLOODS.values(), ids=FLOODS.keys())
def test_a_flood_stays_inside_and_every_command_gets_its_result(sandbox, sibling, attack):
    with ThreadPoolExecutor(8) as threads:
        flood = threads.submit(sandbox.commands.run, attack, timeout=3)

        def beside(i: int) -> int:
            return sibling.commands.run(f"exit {i % 50}", timeout=60).exit_code

        codes = list(threads.map(beside, range(SIBLING_COMMANDS)))
        # In the attacked sandbox a command may be killed, stopped or refused, but has an answer in
        # time.
        started = time.monotonic()
        with contextlib.suppress(DSecError):
            sandbox.commands.run("echo alive", timeout=RESULT_SECONDS)
        answered = time.monotonic() - started
        result = flood.result(60)
    assert codes == [i % 50 for i in range(SIBLING_COMMANDS)]
    assert answered < RESULT_SECONDS * SLACK
    assert result.timed_out or result.exit_code != 0
    after = sandbox.commands.run("echo after", timeout=30)
    assert (after.stdout, after.exit_code) == ("after\n", 0)
    assert sandbox.info().phase == "running"


@pytest.mark.threat_1
def test_a_command_that_floods_can_be_killed(sandbox: Sandbox):
    command = sandbox.commands.start("b() { b | b & }; b; while :; do kill -STOP -1; done")
    started = time.monotonic()
    assert command.kill().exit_code == 137
    assert time.monotonic() - started < RESULT_SECONDS * SLACK
    assert sandbox.commands.run("echo after").stdout == "after\n"


HARMLESS = {
    "reboot": "reboot -f",
    "system-request": "test ! -c /proc/sysrq-trigger && echo h > /proc/sysrq-trigger",
    "unmount-proc": "umount /proc",
    "unmount-root": "umount -l /",
    "unmount-dev": "umount -l /dev",
    "remount-sys": "mount -o remount,rw /sys",
    "kill-init": "kill -9 1",
    "core-memory": 'test -n "$(head -c 8 /proc/kcore | od -An)"',
    "page-flags": 'test -n "$(head -c 8 /proc/kpageflags | od -An)"',
    "make-device": "mknod /tmp/sda b 8 0 && head -c 1 /tmp/sda",
    "host-sysctl": "echo 1 > /proc/sys/vm/drop_caches",
    "host-core-pattern": 'p=/proc/sys/kernel/core_pattern; v=$(cat $p) && echo "$v" > $p',
    "init-memory": "dd if=/proc/1/mem bs=1 count=1",
    "init-root": "ls /proc/1/root/",
}


@pytest.mark.threat_1
@pytest.mark.threat_5
@pytest.mark.parametrize("attack", HARMLESS.values(), ids=HARMLESS.keys())
def test_root_inside_is_not_root_outside(sandbox: Sandbox, attack):
    r = sandbox.commands.run(attack, timeout=20)
    assert r.exit_code != 0, r.stdout
    after = sandbox.commands.run("ls /proc/self/status /dev/null && echo whole", timeout=20)
    assert after.stdout.endswith("whole\n")


@pytest.mark.threat_1
def test_a_command_cannot_leave_its_group_through_a_cgroup_mount_of_its_own(sandbox: Sandbox):
    """Whatever it can mount and write, its time limit still ends all of it."""
    marker = f"500{os.getpid()}"
    script = f"""
        mkdir /tmp/c
        mount -t cgroup2 none /tmp/c || exit 3
        mkdir /tmp/p && mount -t cgroup -o pids none /tmp/p
        for f in $(find /tmp/c /tmp/p -name cgroup.procs -o -name tasks); do
            echo tried
            (echo 0 > $f && echo joined; setsid sleep {marker}) &
        done
        setsid sleep {marker}
    """
    attack = binary().parents[1] / "guest" / "attack"
    sandbox.files.write("/tmp/attack", attack.read_bytes(), mode=0o755)
    r = sandbox.commands.run(["/tmp/attack", "in-group-namespace", script], timeout=3)
    assert r.timed_out, r.stderr
    assert "tried" in r.stdout
    assert "joined" not in r.stdout
    assert host.alive(marker) == []
    assert sandbox.commands.run("echo after").stdout == "after\n"


@pytest.mark.threat_6
def test_the_process_limit_holds_and_gives_all_back(daemon):
    with Sandbox.create(TINY, memory_mb=128, pids=64) as sb:
        r = sb.commands.run(
            "i=0; while [ $i -lt 200 ]; do sleep 30 & i=$((i+1)); done; wait", timeout=10
        )
        assert r.exit_code != 0
        assert "fork" in r.stderr
        assert (
            sb.commands.run("for i in 1 2 3; do sleep 0.01 & done; wait; echo ok").stdout == "ok\n"
        )

"""The `dsec` command against a real daemon, as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
from conftest import TINY
from host import eventually

from libdsec import Sandbox

DSEC = [sys.executable, "-m", "libdsec"]


def dsec(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*DSEC, *arguments], capture_output=True, text=True, timeout=100)


def living() -> list[str]:
    return [s.id for s in Sandbox.list() if s.alive]


def test_run_prints_the_output_exits_with_the_code_and_leaves_nothing(daemon):
    done = dsec("run", TINY, "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")
    assert living() == []


def test_run_with_options(daemon):
    done = dsec(
        "run", TINY, "--cpu", "0.5", "--memory", "64", "--env", "A=b c", "--user", "agent",
        "-o", "json", "--", "sh", "-c", "echo $A; id -u",
    )  # fmt: skip
    fields = json.loads(done.stdout)
    assert (fields["exit_code"], fields["stdout"], fields["timed_out"]) == (0, "b c\n1000\n", False)


def test_run_with_a_time_limit(daemon):
    done = dsec("run", TINY, "--timeout", "0.5", "--", "sh", "-c", "echo before; sleep 60")
    assert (done.returncode, done.stdout) == (124, "before\n")
    assert "time limit" in done.stderr


def test_keep_ps_exec_logs_kill(daemon):
    done = dsec("run", TINY, "--keep", "-o", "json", "--", "echo", "first")
    sandbox = json.loads(done.stdout)["sandbox_id"]
    command = json.loads(done.stdout)["command_id"]
    row = [line for line in dsec("ps").stdout.splitlines() if line.startswith(sandbox)]
    assert row
    assert row[0].split()[1:3] == ["running", TINY]
    assert dsec("exec", sandbox, "--", "cat", "/etc/passwd").stdout.startswith("root:")
    assert dsec("logs", sandbox, command).stdout == "first\n"
    listed = json.loads(dsec("logs", sandbox, "-o", "json").stdout)
    assert [c["exit_code"] for c in listed] == [0, 0]
    done = dsec("kill", sandbox)
    assert (done.returncode, done.stdout) == (0, f"{sandbox}\n")
    assert living() == []
    (ended,) = [s for s in json.loads(dsec("ps", "-a", "-o", "json").stdout) if s["id"] == sandbox]
    assert (ended["phase"], ended["cause"]) == ("stopped", "killed")
    assert dsec("exec", sandbox, "--", "true").returncode != 0


def test_errors_have_their_exit_codes(daemon, monkeypatch):
    done = dsec("run", "none:1", "--", "true")
    assert done.returncode == 66
    assert "none:1" in done.stderr
    done = dsec("run", TINY, "--", "nosuchprogram")
    assert done.returncode == 72
    assert "nosuchprogram" in done.stderr
    assert dsec("kill", "e0-aaaaaaaaaaaaaaaa").returncode == 66
    monkeypatch.setenv("DSEC_API_KEY", "dsec_wrong")
    assert dsec("ps").returncode == 77
    assert living_after_unset(monkeypatch) == []


def living_after_unset(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.delenv("DSEC_API_KEY")
    return living()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_removes_the_sandbox(daemon, number):
    process = subprocess.Popen(
        [*DSEC, "run", TINY, "--", "sh", "-c", "echo up; sleep 60"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(number)
    assert process.wait(30) == 130
    process.stdout.close()
    assert eventually(lambda: not living()), living()


def test_large_output_through_a_pipe(daemon):
    done = subprocess.run(
        f"{sys.executable} -m libdsec run {TINY} -- seq 1 1000000 | tail -1",
        shell=True, capture_output=True, text=True, timeout=100, env=os.environ,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("1000000\n", "")

"""The `dsec` command: what it prints, its exit codes, and the examples in its help."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys

import pytest

from fake_server import FakeServer, eventually, pattern
from libdsec import Sandbox, cli


class Done:
    """What one `dsec` call left behind."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def dsec(server: FakeServer, capfdbinary):
    def call(*arguments: str) -> Done:
        try:
            code = cli.main(arguments)
        except SystemExit as left:
            code = left.code
        sys.stdout.flush()
        sys.stderr.flush()
        captured = capfdbinary.readouterr()
        return Done(code, captured.out.decode(), captured.err.decode())

    return call


def test_run_prints_the_output_and_removes_the_sandbox(server, dsec):
    done = dsec("run", "tiny:1", "--", "echo", "hello", "world")
    assert (done.code, done.out, done.err) == (0, "hello world\n", "")
    assert [s["phase"] for s in server.sandboxes.values()] == ["stopped"]


def test_run_exits_with_the_commands_code_and_its_stderr(server, dsec):
    done = dsec("run", "tiny:1", "--", "err", "bad")
    assert (done.code, done.out, done.err) == (1, "", "bad\n")
    assert dsec("run", "tiny:1", "--", "exit", "42").code == 42


def test_run_passes_its_options_on(server, dsec):
    done = dsec(
        "run", "tiny:1", "--workspace", "w:1", "--toolkit", "a:1", "--toolkit", "b:2",
        "--cpu", "1.5", "--memory", "256", "--env", "A=1", "--env", "B=x=y", "--", "env",
    )  # fmt: skip
    assert done.out == "A=1\nB=x=y"
    known = next(iter(server.sandboxes.values()))
    assert (known["workspace"], known["toolkits"]) == ("w:1", ["a:1", "b:2"])
    assert (known["cpuMillis"], known["memoryMb"]) == (1500, 256)
    done = dsec("run", "tiny:1", "--user", "nobody", "--timeout", "5", "--", "where")
    assert done.out == " nobody 5000"


def test_a_command_may_have_options_and_dashes_of_its_own(server, dsec):
    assert dsec("run", "tiny:1", "--", "echo", "-o", "--", "--help").out == "-o -- --help\n"


def test_run_with_a_time_limit_exits_as_timeout_does(server, dsec):
    done = dsec("run", "tiny:1", "--timeout", "0.1", "--", "hang")
    assert done.code == 124
    assert "time limit of 0.1 s" in done.err


def test_output_that_was_lost_is_told_and_is_no_success(server, dsec):
    server.room = 10
    done = dsec("run", "tiny:1", "--", "out", "1000")
    assert (done.code, done.out) == (74, pattern(10).decode())
    assert "990 of 1000 bytes of its stdout were lost" in done.err
    done = dsec("run", "tiny:1", "-o", "json", "--", "out", "1000")
    assert done.code == 74
    assert done.json["exit_code"] == 0
    assert done.json["error"]["code"] == "io"


def test_run_keeps_the_sandbox_when_asked(server, dsec):
    done = dsec("run", "tiny:1", "--keep", "--", "echo", "hi")
    sandbox = next(iter(server.sandboxes))
    assert server.sandboxes[sandbox]["phase"] == "running"
    assert server.sandboxes[sandbox]["detached"]  # it outlives the command's lease
    assert sandbox in done.err


def test_run_as_json(server, dsec):
    done = dsec("run", "tiny:1", "-o", "json", "--", "err", "bad")
    assert done.code == 1
    assert done.err == ""
    fields = done.json
    assert (fields["exit_code"], fields["stderr"], fields["stdout"]) == (1, "bad\n", "")
    assert fields["timed_out"] is False
    assert fields["sandbox_id"] in server.sandboxes


def test_run_passes_large_output_through(server, dsec):
    assert dsec("run", "tiny:1", "--", "out", "3000000").out == pattern(3_000_000).decode()


def test_ps_lists_what_lives(server, dsec):
    dsec("run", "tiny:1", "--", "exit", "0")
    dsec("run", "tiny:1", "--keep", "--", "exit", "0")
    head, *rows = dsec("ps").out.splitlines()
    assert head.split() == ["SANDBOX", "PHASE", "IMAGE", "AGE", "COMMANDS", "CAUSE"]
    assert [row.split()[1] for row in rows] == ["running"]
    assert len(dsec("ps", "--all").out.splitlines()) == 3
    assert [s["phase"] for s in dsec("ps", "-a", "-o", "json").json] == ["stopped", "running"]


def test_exec_in_a_running_sandbox(server, dsec):
    with Sandbox.create("tiny:1") as sb:
        done = dsec("exec", sb.id, "--", "echo", "again")
        assert (done.code, done.out) == (0, "again\n")
        assert dsec("exec", sb.id, "-o", "json", "--", "exit", "3").json["exit_code"] == 3
        assert sb.info().alive


def test_kill_stops_all_and_tells_what_it_could_not(server, dsec):
    first, second = Sandbox.create("tiny:1"), Sandbox.create("tiny:1")
    done = dsec("kill", first.id, "e0-none", second.id)
    assert done.code == 66
    assert done.out.split() == [first.id, second.id]
    assert "e0-none" in done.err
    assert not first.info().alive
    assert not second.info().alive
    done = dsec("kill", first.id, "-o", "json")
    assert (done.code, done.json[0]["phase"]) == (0, "stopped")


def test_logs_list_commands_and_print_one(server, dsec):
    with Sandbox.create("tiny:1") as sb:
        sb.commands.start("echo one", command_id="c1").wait()
        sb.commands.start("err two", command_id="c2").wait()
        sb.commands.start("hang", command_id="c3")
        head, *rows = dsec("logs", sb.id).out.splitlines()
        assert head.split() == ["COMMAND", "STATE", "EXIT", "SECONDS", "ARGV"]
        assert rows[0].split()[:3] == ["c1", "ended", "0"]
        assert rows[2].split() == ["c3", "running", "hang"]
        done = dsec("logs", sb.id, "c2")
        assert (done.code, done.out, done.err) == (0, "", "two\n")
        assert dsec("logs", sb.id, "c3").out == ""
        assert dsec("logs", sb.id, "c1", "-o", "json").json["stdout"] == "one\n"
        assert [c["id"] for c in dsec("logs", sb.id, "-o", "json").json] == ["c1", "c2", "c3"]
        assert dsec("logs", sb.id, "none").code == 66


def test_errors_have_the_documented_exit_codes(server, dsec, monkeypatch):
    assert dsec("exec", "e0-none", "--", "true").code == 66
    server.next_error["createSandbox"] = ("capacity", "no memory left", "memory", True)
    done = dsec("run", "tiny:1", "--", "true")
    assert (done.code, done.err) == (75, "dsec: no memory left (capacity)\n")
    server.next_error["createSandbox"] = ("capacity", "no memory left", "memory", True)
    done = dsec("run", "tiny:1", "-o", "json", "--", "true")
    assert json.loads(done.err)["error"] == {
        "code": "capacity", "message": "no memory left", "object": "memory", "retryable": True,
    }  # fmt: skip
    monkeypatch.setenv("DSEC_API_KEY", "dsec_wrong")
    assert dsec("ps").code == 77


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["fly"],
        ["run", "tiny:1"],
        ["run", "tiny:1", "--"],
        ["run", "tiny:1", "--env", "novalue", "--", "true"],
        ["ps", "--", "true"],
        ["kill"],
    ],
)
def test_wrong_usage_exits_with_64_and_says_why(dsec, arguments):
    done = dsec(*arguments)
    assert done.code == 64
    assert done.err.startswith("usage: dsec")
    assert "dsec" in done.err.splitlines()[-1]


def examples() -> list[str]:
    parser = cli._parser()
    helps = [parser.format_help()]
    subparsers = next(a for a in parser._actions if hasattr(a, "choices") and a.choices)
    helps += [sub.format_help() for sub in subparsers.choices.values()]
    return sorted({line for text in helps for line in re.findall(r"^  (dsec .*)$", text, re.M)})


def test_every_command_shows_examples():
    lines = examples()
    assert len(lines) >= 8
    for verb in ("run", "ps", "exec", "kill", "logs", "events", "top"):
        assert any(line.startswith(f"dsec {verb}") for line in lines)


def goes_on_until_interrupted(words: list[str]) -> None:
    process = start(*words)
    assert process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (130, "")


@pytest.mark.parametrize("line", examples())
def test_the_examples_in_the_help_work(server, dsec, line):
    server.events.append({"kind": "node.started"})
    sandbox = Sandbox.create("debian-python:12")
    command = sandbox.commands.start("echo logged")
    known = {"ID": sandbox.id, "COMMAND": command.id, "TRACE": "t1"}
    words = [known.get(w, w) for w in shlex.split(line)[1:]]
    if "--follow" in words or (words[0] == "top" and "--once" not in words):
        return goes_on_until_interrupted(words)
    done = dsec(*words)
    assert done.code == 0, done.err


def test_help_is_printed_for_every_command(dsec):
    for arguments in (
        [], ["run"], ["ps"], ["exec"], ["kill"], ["logs"], ["events"], ["top"], ["completion"],
    ):  # fmt: skip
        done = dsec(*arguments, "--help")
        assert done.code == 0
        assert "examples:" in done.out


def start(*arguments: str, **options) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "libdsec", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,
    )  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_removes_the_sandbox(server, number):
    process = start("run", "tiny:1", "--", "hang")
    assert eventually(lambda: server.starts)
    process.send_signal(number)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert err == ""
    assert [s["phase"] for s in server.sandboxes.values()] == ["stopped"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_sandbox_is_being_made_leaves_none(server, number):
    server.create_delay = 30
    process = start("run", "tiny:1", "--", "true")
    assert eventually(lambda: "createSandbox" in server.requests)
    process.send_signal(number)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (130, "")
    assert server.sandboxes == {}  # the connection is closed, which withdraws it


def test_a_reader_that_goes_away_ends_it_quietly(server):
    read, write = os.pipe()
    os.close(read)
    process = subprocess.run(
        [sys.executable, "-m", "libdsec", "run", "tiny:1", "--", "out", "100000"],
        stdout=write, stderr=subprocess.PIPE, text=True, timeout=30,
    )  # fmt: skip
    os.close(write)
    assert (process.returncode, process.stderr) == (141, "")
    assert [s["phase"] for s in server.sandboxes.values()] == ["stopped"]


def test_a_missing_daemon_says_how_to_start_it(tmp_path):
    environment = {**os.environ, "DSEC_STATE": str(tmp_path)}
    environment.pop("DSEC_URL", None)
    process = start("ps", env=environment)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 69
    assert "scripts/quickstart" in err
    assert "Traceback" not in err

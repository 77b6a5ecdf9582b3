"""`dsec events` and `dsec top`: what they print, and how they go on."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys

from fake_server import FakeServer, eventually
from libdsec import Sandbox, cli


def dsec(capsys, *arguments: str) -> tuple[int, str, str]:
    code = cli.main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "libdsec", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def told(server: FakeServer, kind: str, **more: object) -> None:
    server.events.append({"kind": kind, "unixMs": 1_700_000_000_123, **more})


def test_events_are_a_line_each(server, capsys):
    told(server, "sandbox.created", sandboxId="e0-a", traceId="t1", detail="tiny:1")
    told(server, "command.ended", sandboxId="e0-a", commandId="c", traceId="t2", cause="exit",
         exitCode=3)  # fmt: skip
    told(server, "node.unhealthy", detail="disk: full\nand more")
    code, out, err = dsec(capsys, "events")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "2023-11-14T22:13:20.123Z sandbox.created    sandbox=e0-a trace=t1 detail=tiny:1",
        "2023-11-14T22:13:20.123Z command.ended      sandbox=e0-a command=c exit=3 cause=exit "
        "trace=t2",
        "2023-11-14T22:13:20.123Z node.unhealthy     detail=disk: full\\nand more",
    ]


def test_events_are_filtered_by_the_server_and_can_be_json(server, capsys):
    told(server, "sandbox.created", sandboxId="e0-a", traceId="t1")
    told(server, "sandbox.created", sandboxId="e0-b", traceId="t2")
    _, out, _ = dsec(capsys, "events", "--trace", "t2", "-o", "json")
    assert [json.loads(line)["sandbox_id"] for line in out.splitlines()] == ["e0-b"]
    _, out, _ = dsec(capsys, "events", "--sandbox", "e0-a")
    assert out.count("\n") == 1


def test_lost_events_are_told(server, capsys):
    server.events_dropped = 7
    _, out, err = dsec(capsys, "events")
    assert (out, err) == ("", "dsec: 7 older events are lost\n")


def test_workers_that_do_not_answer_are_named(server, capsys):
    told(server, "sandbox.created", sandboxId="e0-a")
    server.unreachable = ["w2"]
    code, out, err = dsec(capsys, "events")
    assert (code, out.count("\n"), err) == (0, 1, "dsec: worker 'w2' does not answer\n")
    _, out, _ = dsec(capsys, "top", "--once")
    assert "node w2: does not answer" in out.splitlines()
    _, out, _ = dsec(capsys, "top", "--once", "-o", "json")
    assert json.loads(out)["unreachable"] == ["w2"]


def test_following_goes_on_where_it_was(server):
    told(server, "sandbox.created", sandboxId="e0-a")
    process = start("events", "--follow", "-o", "json")
    assert json.loads(process.stdout.readline())["sandbox_id"] == "e0-a"
    assert eventually(lambda: len(server.asked_events) >= 3)
    assert server.asked_events[:3] == [("", 0), ("e0:first:1", 0), ("e0:first:1", 20_000)]
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (130, "")


def test_top_once_shows_the_node_and_what_living_sandboxes_use(server, capsys):
    server.unhealthy = ["disk: full"]
    with Sandbox.create("tiny:1", memory_mb=64) as sandbox:
        ended = Sandbox.create("tiny:1")
        ended.stop()
        code, out, err = dsec(capsys, "top", "--once")
        assert (code, err) == (0, "")
        node, unhealthy, empty, head, row = out.splitlines()
        assert node == (
            "node e0: 2 sandboxes, 2 creates wait, 8 slots ready; memory 6.0 of 8.0 GiB free, "
            "limits 1.0"
        )
        assert (unhealthy, empty) == ("unhealthy: disk: full", "")
        assert head.split() == [
            "SANDBOX", "PHASE", "IMAGE", "AGE", "COMMANDS", "TASKS", "MEMORY", "CPU", "%CPU",
        ]  # fmt: skip
        assert row.split() == [sandbox.id, "running", "tiny:1", "0s", "0", "4", "3.0M", "0.25s"]
        _, out, _ = dsec(capsys, "top", "--once", "-o", "json")
        (shown,) = json.loads(out)["sandboxes"]
        assert shown["usage"] == {"memory_bytes": 3 << 20, "cpu_usec": 500_000, "tasks": 4}


def test_top_looks_again_and_shows_the_share_of_a_cpu(server):
    with Sandbox.create("tiny:1"):
        process = start("top", "--interval", "0.5")
        rows = []
        while len(rows) < 2:
            line = process.stdout.readline()
            assert line
            if line.startswith("e0-"):
                rows.append(line.split())
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
    assert process.returncode == 130
    assert len(rows[0]) == 8
    assert re.fullmatch(r"\d+\.\d", rows[1][8])
    assert 10 < float(rows[1][8]) <= 50


def test_the_environment_names_the_trace_of_all_requests(server, monkeypatch):
    monkeypatch.setenv("DSEC_TRACE_ID", "job-7")
    with Sandbox.create("tiny:1") as sandbox:
        sandbox.commands.run("echo hi")
    assert set(server.traces) >= {("createSandbox", "job-7"), ("exec", "job-7")}

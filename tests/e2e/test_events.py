"""Events and traces of a real daemon, and what `dsec top` shows of it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading

import pytest
from conftest import TINY
from daemon import Daemon
from host import eventually

from libdsec import Sandbox


def dsec(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "libdsec", *arguments], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def events(*arguments: str) -> list[dict]:
    return [json.loads(line) for line in dsec("events", "-o", "json", *arguments).splitlines()]


def kinds(found: list[dict]) -> list[str]:
    return [e["kind"] for e in found]


def log_lines(daemon: Daemon) -> list[dict]:
    lines = daemon.log.read_text().splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def test_the_life_of_a_sandbox_as_events(daemon):
    with Sandbox.create(TINY, memory_mb=64) as sandbox:
        sandbox.commands.run(["sh", "-c", "exit 3"])
        with pytest.raises(Exception, match="nosuch"):
            sandbox.commands.run(["/nosuch"])
    found = events("--sandbox", sandbox.id)
    assert kinds(found) == [
        "sandbox.created", "sandbox.running", "command.started", "command.ended",
        "command.failed", "sandbox.stopped",
    ]  # fmt: skip
    assert found[2]["detail"] == "sh -c exit 3"
    assert (found[3]["exit_code"], found[3]["cause"]) == (3, "exit")
    assert found[4]["cause"] == "exec_failed"
    assert found[5]["cause"] == "killed"
    assert [e["seq"] for e in found] == sorted({e["seq"] for e in found})
    assert {e["edge"] for e in found} == {sandbox.id.rpartition("-")[0]}
    assert kinds(events())[0] == "node.started"


@pytest.mark.daemon(config="log_level = 'debug'\n")
def test_one_trace_through_all_logs_and_events_and_the_next_daemon(own, monkeypatch):
    monkeypatch.setenv("DSEC_TRACE_ID", "job-7")
    sandbox = Sandbox.create(TINY, memory_mb=64)
    sandbox.commands.run(["true"])
    monkeypatch.delenv("DSEC_TRACE_ID")
    sandbox.commands.run(["true"])  # another trace
    mine = [line for line in log_lines(own) if line.get("trace") == "job-7"]
    told = {(line["event"], line.get("request") or line.get("to") or "") for line in mine}
    assert told >= {
        ("request", "createSandbox"), ("sandbox_admitted", ""), ("sandbox_phase", "preparing"),
        ("sandbox_phase", "starting"), ("sandbox_phase", "running"), ("request", "exec"),
        ("command.started", ""), ("command.ended", ""),
    }  # fmt: skip
    assert kinds(events("--trace", "job-7")) == [
        "sandbox.created", "sandbox.running", "command.started", "command.ended",
    ]  # fmt: skip
    own.restart()
    sandbox.stop()
    assert kinds(events("--trace", "job-7")) == ["sandbox.stopped"]
    ended = [line for line in log_lines(own) if line.get("to") == "stopped"]
    assert [line["trace"] for line in ended] == ["job-7"]


def test_following_shows_what_happens_as_it_happens_and_goes_on_with_the_next_daemon(own):
    process = subprocess.Popen(
        [sys.executable, "-m", "libdsec", "events", "--follow", "-o", "json"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    seen: list[dict] = []

    def read_each() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            seen.append(json.loads(line))

    def of_sandboxes() -> list[str]:
        return [kind for kind in kinds(seen) if kind.startswith("sandbox.")]

    def starts() -> int:
        return kinds(seen).count("node.started")

    reader = threading.Thread(target=read_each)
    reader.start()
    try:
        nodes = len(json.loads(dsec("top", "--once", "-o", "json"))["nodes"])
        assert eventually(lambda: starts() == nodes)
        with Sandbox.create(TINY, memory_mb=64) as sandbox:
            assert eventually(lambda: of_sandboxes() == ["sandbox.created", "sandbox.running"], 5)
            own.restart()
            assert eventually(lambda: starts() == 2 * nodes, 30)
        assert eventually(lambda: of_sandboxes()[-1] == "sandbox.stopped", 5)
        # The first dsecd may have been killed before it had written down that the sandbox ran.
        assert of_sandboxes()[2:-1] in ([], ["sandbox.running"])
        assert {e["sandbox_id"] for e in seen if e["sandbox_id"]} == {sandbox.id}
    finally:
        process.terminate()
        process.wait(10)
        reader.join(10)


def test_a_launcher_that_dies_is_an_event(own):
    with Sandbox.create(TINY, memory_mb=64):
        subprocess.run(["kill", "-9", str(own.launcher)], check=True)
        assert eventually(lambda: "launcher.restarted" in kinds(events()))
        assert own.launcher != 0
        assert [k for k in kinds(events()) if k.startswith("launcher.")] == [
            "launcher.died", "launcher.restarted"]  # fmt: skip


def test_top_shows_what_a_sandbox_uses(daemon):
    with Sandbox.create(TINY, memory_mb=64) as sandbox:
        spin = sandbox.commands.start("while :; do :; done")

        def looked() -> dict:
            return json.loads(dsec("top", "--once", "-o", "json"))

        assert eventually(lambda: looked()["sandboxes"][0]["usage"]["cpu_usec"] > 300_000, 30)
        shown = looked()
        assert sum(node["sandboxes"] for node in shown["nodes"]) == 1
        assert sum(node["memory_admitted_bytes"] for node in shown["nodes"]) == 64 << 20
        (one,) = shown["sandboxes"]
        assert (one["id"], one["commands_running"]) == (sandbox.id, 1)
        assert one["usage"]["memory_bytes"] > 0
        assert one["usage"]["tasks"] >= 1
        text = dsec("top", "--once").splitlines()
        edge = sandbox.id.rpartition("-")[0]
        assert any(line.startswith(f"node {edge}: 1 sandboxes, 0 creates wait") for line in text)
        assert text[-1].split()[0] == sandbox.id
        spin.kill()
    assert json.loads(dsec("top", "--once", "-o", "json"))["sandboxes"] == []


def test_top_does_not_keep_an_idle_sandbox_alive(daemon):
    sandbox = Sandbox.create(TINY, memory_mb=64, idle_ttl=2)
    assert eventually(
        lambda: not json.loads(dsec("top", "--once", "-o", "json"))["sandboxes"], 20
    )
    assert sandbox.info().cause == "ttl"

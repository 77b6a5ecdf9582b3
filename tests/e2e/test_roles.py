"""Coordinator and workers as processes: what a user sees of it, and what each of them may lose."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import host
import prometheus
import pytest
from cluster import Cluster, to_toml
from conftest import TINY, assert_nothing, serve
from daemon import Daemon, binary

from libdsec import AsyncSandbox, DSecClient, DSecError, NotFoundError, Sandbox, UnavailableError

SLACK = 5
TOLD = "echo run >> /root/runs; while [ ! -e /root/go ]; do sleep 0.05; done; wc -l < /root/runs"


@pytest.fixture(scope="module")
def cluster(tiny_tree: Path) -> Iterator[Cluster]:
    made = Cluster("roles")
    yield from serve(made, lambda c: c.image_import(TINY, tiny_tree, "base"))


@pytest.fixture
def own_cluster(request: pytest.FixtureRequest, tiny_tree: Path) -> Iterator[Cluster]:
    marker = request.node.get_closest_marker("daemon")
    arguments = marker.kwargs if marker else {}
    made = Cluster(f"rolesown-{abs(hash(request.node.name)) % 10000}", **arguments)
    yield from serve(made, lambda c: c.image_import(TINY, tiny_tree, "base"))


def one_on_each(cluster: Cluster) -> dict[str, Sandbox]:
    """A sandbox on every worker, by its name. A worker is used once it has reported the images."""
    found: dict[str, Sandbox] = {}

    def on_all() -> bool:
        sandbox = Sandbox.create(TINY, memory_mb=32)
        if found.setdefault(sandbox.id.rpartition("-")[0], sandbox) is not sandbox:
            sandbox.stop()
        return len(found) == len(cluster.workers)

    assert host.eventually(on_all, SLACK), f"all creates went to {list(found)}"
    return found


def test_sandboxes_of_two_workers_are_created_used_listed_and_stopped(cluster: Cluster):
    sandboxes = one_on_each(cluster)
    assert set(sandboxes) == {"w1", "w2"}
    for edge, sandbox in sandboxes.items():
        result = sandbox.commands.run(["sh", "-c", "echo $0; exit 3", edge])
        assert (result.stdout, result.exit_code) == (f"{edge}\n", 3)
        sandbox.files.write("/root/file", edge.encode() * 100_000)
        assert sandbox.files.read("/root/file") == edge.encode() * 100_000
        # It runs where its id says, and nowhere else.
        assert cluster[edge].live_leaks() != ""
    assert {s.id for s in Sandbox.list() if s.alive} == {s.id for s in sandboxes.values()}
    for sandbox in sandboxes.values():
        sandbox.stop()
    assert host.eventually(lambda: not cluster.live_leaks(), SLACK), cluster.live_leaks()


def test_large_files_and_output_come_through_whole(cluster: Cluster):
    with Sandbox.create(TINY, memory_mb=128) as sandbox:
        data = os.urandom(20 << 20)
        sandbox.files.write("/root/large", data)
        assert sandbox.files.read("/root/large") == data
        result = sandbox.commands.run("seq 1 300000")
        assert result.stdout == "".join(f"{i}\n" for i in range(1, 300_001))


def test_a_create_with_a_key_finds_its_sandbox_wherever_that_is(cluster: Cluster):
    ids = {}
    for i in range(6):
        key = f"key-{i}"
        ids[key] = Sandbox.create(TINY, memory_mb=32, idempotency_key=key).id
    for key, id_ in ids.items():
        assert Sandbox.create(TINY, memory_mb=32, idempotency_key=key).id == id_
    for id_ in ids.values():
        Sandbox.connect(id_).stop()


def test_an_unknown_image_is_said_by_every_worker(cluster: Cluster):
    with pytest.raises(NotFoundError, match="w1: .*nothing:1.*w2: .*nothing:1"):
        Sandbox.create("nothing:1")


def test_a_worker_has_no_door_for_clients(cluster: Cluster):
    worker = cluster["w1"]
    status, body = worker.get("/v1/ws")
    assert (status, body["error"]["code"]) == (404, "not_found")
    assert worker.get("/healthz")[0] == 200
    assert not (worker.state / "url").exists()
    status, body = worker.get("/v1/peer")
    assert status == 404
    status, _ = cluster.coordinator.get("/v1/peer")
    assert status == 426


def test_nothing_is_lost_or_run_twice_when_the_coordinator_is_killed(own_cluster: Cluster):
    sandboxes = one_on_each(own_cluster)
    results = {}

    def wait(edge: str, sandbox: Sandbox) -> None:
        results[edge] = sandbox.commands.run(f"{TOLD}; exit 7", timeout=100)

    waiting = [threading.Thread(target=wait, args=item) for item in sandboxes.items()]
    for thread in waiting:
        thread.start()
    for sandbox in sandboxes.values():
        assert host.eventually(lambda s=sandbox: any(c.running for c in s.commands.list()))
    key = Sandbox.create(TINY, memory_mb=32, idempotency_key="before")
    for _ in range(3):
        own_cluster.coordinator.restart()
        for sandbox in sandboxes.values():
            assert sandbox.commands.run("echo on").stdout == "on\n"
    again = Sandbox.create(TINY, memory_mb=32, idempotency_key="before")
    assert again.id == key.id
    again.stop()
    for sandbox in sandboxes.values():
        sandbox.files.write("/root/go", b"")
    for thread in waiting:
        thread.join()
    for edge, sandbox in sandboxes.items():
        assert (results[edge].exit_code, results[edge].stdout) == (7, "1\n")
        assert sandbox.files.read("/root/runs") == b"run\n"
        sandbox.stop()


def test_a_killed_worker_is_taken_over_by_its_next_start_and_others_notice_nothing(
    own_cluster: Cluster,
):
    sandboxes = one_on_each(own_cluster)
    command = sandboxes["w1"].commands.start(["sh", "-c", f"{TOLD}; exit 7"])
    own_cluster["w1"].kill()
    assert host.eventually(lambda: own_cluster.edges()["w1"] == "unreachable", SLACK)
    assert sandboxes["w2"].commands.run("echo here").stdout == "here\n"
    # What is not there is said, and creates go on.
    assert {s.id for s in Sandbox.list() if s.alive} == {sandboxes["w2"].id}
    with pytest.raises(UnavailableError, match="edge 'w1'"):
        sandboxes["w1"].commands.run("true", timeout=60)
    with Sandbox.create(TINY, memory_mb=32) as other:
        assert other.id.startswith("w2-")
    own_cluster["w1"].start()
    own_cluster.wait_joined()
    assert sandboxes["w1"].commands.run("echo back").stdout == "back\n"
    sandboxes["w1"].files.write("/root/go", b"")
    result = command.wait(60)
    assert (result.exit_code, result.stdout) == (7, "1\n")
    for sandbox in sandboxes.values():
        sandbox.stop()


def test_sandboxes_end_with_their_client_and_not_with_a_coordinator(own_cluster: Cluster):
    async def use() -> None:
        async with DSecClient(lease_seconds=2) as client:
            kept = [await AsyncSandbox.create(TINY, memory_mb=32, client=client) for _ in range(4)]
            own_cluster.coordinator.kill()
            await asyncio.sleep(4)  # twice the lease: nobody can come back
            own_cluster.coordinator.start()
            own_cluster.wait_joined()
            for sandbox in kept:
                assert (await sandbox.commands.run("echo on")).stdout == "on\n"

    asyncio.run(use())
    # Now the client has gone; what was held over the old links is held for a little longer.
    assert host.eventually(lambda: not any(s.alive for s in Sandbox.list()), 32 + 2 * SLACK)


def test_a_worker_without_the_secret_is_refused_on_both_sides(own_cluster: Cluster, tmp_path: Path):
    wrong = tmp_path / "secret"
    wrong.write_text("x" * 40)
    wrong.chmod(0o600)
    with stranger(own_cluster, "w9", wrong) as worker:
        assert host.eventually(lambda: "does not know this worker's secret" in worker.tail(), SLACK)
        status, health = worker.get("/healthz")
        assert status == 503
        assert health["reasons"][0]["subject"] == f"coordinator 127.0.0.1:{own_cluster.port}"
    assert "w9" not in own_cluster.edges()


def test_a_second_worker_of_a_name_is_refused_and_the_first_serves_on(own_cluster: Cluster):
    secret = own_cluster.state / "peer-secret"
    with stranger(own_cluster, "w1", secret) as worker:
        assert host.eventually(lambda: "another worker named 'w1'" in worker.tail(), SLACK)
        assert "worker_refused" in own_cluster.coordinator.tail()
        for sandbox in one_on_each(own_cluster).values():
            assert sandbox.commands.run("echo here").stdout == "here\n"
            sandbox.stop()


def told_as_json(*arguments: str) -> list[dict]:
    done = subprocess.run(
        [sys.executable, "-m", "libdsec", *arguments, "-o", "json"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_events_load_and_usage_of_all_workers_come_from_the_coordinator(own_cluster: Cluster):
    sandboxes = one_on_each(own_cluster)
    for sandbox in sandboxes.values():
        sandbox.commands.run("true")
    told = told_as_json("events")
    for edge, sandbox in sandboxes.items():
        mine = [e for e in told if e["sandbox_id"] == sandbox.id]
        assert [e["kind"] for e in mine] == [
            "sandbox.created", "sandbox.running", "command.started", "command.ended",
        ]  # fmt: skip
        assert {e["edge"] for e in mine} == {edge}
    done = subprocess.run(
        [sys.executable, "-m", "libdsec", "top", "--once", "-o", "json"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    shown = json.loads(done.stdout)
    assert [(node["edge"], node["sandboxes"]) for node in shown["nodes"]] == [("w1", 1), ("w2", 1)]
    assert all(s["usage"]["memory_bytes"] > 0 for s in shown["sandboxes"])
    own_cluster["w1"].kill()
    assert host.eventually(lambda: own_cluster.edges()["w1"] == "unreachable", SLACK)
    done = subprocess.run(
        [sys.executable, "-m", "libdsec", "top", "--once"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert "node w1: does not answer" in done.stdout.splitlines()
    own_cluster["w1"].start()
    own_cluster.wait_joined()
    for sandbox in sandboxes.values():
        sandbox.stop()


@pytest.mark.daemon(config="log_level = 'debug'\n")
def test_a_trace_goes_through_the_coordinator_and_the_worker(
    own_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("DSEC_TRACE_ID", "job-7")
    with Sandbox.create(TINY, memory_mb=32) as sandbox:
        sandbox.commands.run("true")
    for daemon in (own_cluster.coordinator, own_cluster.of(sandbox.id)):
        lines = [json.loads(x) for x in daemon.log.read_text().splitlines() if x.startswith("{")]
        requests = {x.get("request") for x in lines if x.get("trace") == "job-7"}
        assert {"createSandbox", "exec", "stopSandbox"} <= requests


def test_metrics_of_a_coordinator_are_its_own(own_cluster: Cluster):
    with Sandbox.create(TINY, memory_mb=32) as sandbox:
        coordinator = prometheus.parse(prometheus.fetch(own_cluster.coordinator.port))
        assert coordinator["dsec_workers"].samples[
            ("dsec_workers", (("state", "connected"),))
        ] == len(own_cluster.workers)
        assert "dsec_sandboxes" not in coordinator
        requests = coordinator["dsec_requests_total"].samples
        created = (("request", "createSandbox"), ("code", "ok"))
        assert requests[("dsec_requests_total", created)] == 1
        worker = prometheus.parse(prometheus.fetch(own_cluster.of(sandbox.id).port))
        running = (("phase", "running"),)
        assert worker["dsec_sandboxes"].samples[("dsec_sandboxes", running)] == 1
        assert "dsec_workers" not in worker


class stranger:
    """A third worker, with a name and a secret that the test chooses."""

    def __init__(self, cluster: Cluster, name: str, secret: Path):
        config = cluster._worker({}, 3)
        config["node"]["name"] = name
        config["peer"]["secret_file"] = secret
        self.daemon = Daemon(f"stranger-{name}", to_toml(config), role="worker")

    def __enter__(self) -> Daemon:
        self.daemon.start()
        return self.daemon

    def __exit__(self, *_: object) -> None:
        self.daemon.stop()
        assert_nothing(self.daemon.leaks)
        self.daemon.remove()


def starts(tmp_path: Path, role: str, config: dict[str, object], code: int) -> str:
    """What a dsecd says that does not start."""
    file = tmp_path / "config.toml"
    file.write_text(to_toml(config))
    done = subprocess.run(
        [
            binary(), "serve", f"--role={role}", "--config", file, "--state", tmp_path / "state",
            "--instance", f"e2e-{os.getpid()}-bad", "--port", "0",
        ],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return done.stderr


def test_a_worker_that_is_set_up_wrongly_says_what_is_missing(tmp_path: Path):
    assert "needs peer.coordinators" in starts(tmp_path, "worker", {}, 64)
    far = {"peer": {"coordinators": ["10.0.0.1:7070"]}}
    refused = starts(tmp_path, "worker", far, 64)
    assert "is not on loopback" in refused and "peer.ca_file" in refused
    name = {"peer": {"coordinators": ["coordinator:7070"]}}
    assert "is not ADDRESS:PORT" in starts(tmp_path, "worker", name, 64)
    here = {"coordinators": ["127.0.0.1:7070"], "secret_file": tmp_path / "secret"}
    assert "must be a copy of the coordinator's" in starts(tmp_path, "worker", {"peer": here}, 66)
    (tmp_path / "secret").write_text("x" * 40)
    (tmp_path / "secret").chmod(0o644)
    assert "chmod 600" in starts(tmp_path, "worker", {"peer": here}, 77)
    (tmp_path / "secret").chmod(0o600)
    (tmp_path / "secret").write_text("short")
    assert "holds less than 32 characters" in starts(tmp_path, "worker", {"peer": here}, 64)


def test_a_coordinator_with_tls_needs_the_authorities_of_its_workers(tmp_path: Path):
    tls = {"gateway": {"tls_cert": tmp_path / "cert.pem", "tls_key": tmp_path / "key.pem"}}
    assert "needs peer.ca_file" in starts(tmp_path, "coordinator", tls, 64)


def test_a_coordinator_needs_no_root_and_is_purged_like_any_other(tmp_path: Path):
    nobody = pwd.getpwnam("nobody")
    place = Path("/var/tmp") / f"dsec-e2e-coordinator-{os.getpid()}"
    place.mkdir()
    program = place / "dsecd"
    shutil.copy2(binary(), program)  # the build may not be for everybody to read
    os.chown(place, nobody.pw_uid, nobody.pw_gid)
    place.chmod(0o755)
    try:
        daemon = Daemon("nobody", role="coordinator", place=place, program=program)
        os.chown(daemon.state, nobody.pw_uid, nobody.pw_gid)
        os.chmod(daemon.config, 0o644)
        daemon.wrapper = [
            "setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups",
        ]  # fmt: skip
        daemon.start()
        assert daemon.get("/healthz")[0] == 200
        url = (daemon.state / "url").read_text().strip()
        key = (daemon.state / "api-key").read_text().strip()

        async def create() -> None:
            async with DSecClient(url, key) as client:
                await AsyncSandbox.create(TINY, timeout=2, client=client)

        with pytest.raises(DSecError, match="no worker"):
            asyncio.run(create())
        daemon.leave()
        daemon.dsecd("purge", "--yes")
        assert not daemon.state.exists()
    finally:
        daemon.remove()
        shutil.rmtree(place)

"""`GET /metrics` of a daemon that has done something."""

from __future__ import annotations

import json
import subprocess

import prometheus
import pytest
from conftest import TINY
from daemon import Daemon
from host import eventually
from network import ADDRESS, Network

from libdsec import NotFoundError, Sandbox

ONE_PROCESS = "every process counts for itself; test_roles.py has those of a cluster"

UNITS = ("_seconds", "_bytes", "_total", "_sandboxes", "_waiting", "_slots", "_connections",
         "_jobs", "_reasons", "_workers")  # fmt: skip


def fetch(daemon: Daemon) -> str:
    return prometheus.fetch(daemon.port)


def value(text: str, name: str, **labels: str) -> float:
    family = prometheus.parse(text)[name.removesuffix("_count")]
    return family.samples.get((name, tuple(labels.items())), 0.0)


def test_the_page_is_in_the_format_and_every_name_has_its_unit(daemon):
    for name, family in prometheus.parse(fetch(daemon)).items():
        assert name.startswith("dsec_")
        assert name.endswith(UNITS), name
        assert (family.type == "counter") == name.endswith("_total"), name
        assert family.help.endswith("."), name


def test_what_is_done_is_counted(daemon):
    before = fetch(daemon)

    def more(name: str, **labels: str) -> float:
        return value(fetch(daemon), name, **labels) - value(before, name, **labels)

    with Sandbox.create(TINY, memory_mb=64) as sandbox:
        sandbox.commands.run(["true"])
        assert value(fetch(daemon), "dsec_sandboxes", phase="running") == 1
        assert value(fetch(daemon), "dsec_admitted_memory_bytes") == 64 << 20
        assert value(fetch(daemon), "dsec_connections") >= 1
    with pytest.raises(NotFoundError):
        Sandbox.create("none:1")
    assert more("dsec_requests_total", request="createSandbox", code="ok") == 1
    assert more("dsec_requests_total", request="createSandbox", code="not_found") == 1
    assert more("dsec_request_duration_seconds_count", request="createSandbox") == 2
    assert more("dsec_request_duration_seconds_count", request="exec") == 1
    assert more("dsec_sandboxes", phase="stopped") == 1
    assert value(fetch(daemon), "dsec_sandboxes", phase="running") == 0
    assert value(fetch(daemon), "dsec_admitted_memory_bytes") == 0
    assert more("dsec_received_bytes_total") > 100
    assert more("dsec_sent_bytes_total") > 100
    assert eventually(lambda: value(fetch(daemon), "dsec_ready_slots") == 8)
    assert value(fetch(daemon), "dsec_pool_stuck_jobs", pool="start") == 0
    assert eventually(lambda: value(fetch(daemon), "dsec_scheduling_delay_seconds_count") > 0)


def test_a_launcher_that_dies_is_counted_and_phases_survive_the_next_daemon(own):
    sandbox = Sandbox.create(TINY, memory_mb=64)
    assert value(fetch(own), "dsec_launcher_restarts_total") == 0
    subprocess.run(["kill", "-9", str(own.launcher)], check=True)
    # Its death is told at once; that another holds the sandbox, when dsecd may be killed too.
    assert eventually(lambda: value(fetch(own), "dsec_launcher_deaths_total") == 1)
    assert eventually(lambda: value(fetch(own), "dsec_launcher_restarts_total") == 1)
    own.restart()
    assert eventually(lambda: value(fetch(own), "dsec_sandboxes", phase="running") == 1)
    sandbox.stop()
    assert eventually(lambda: value(fetch(own), "dsec_sandboxes", phase="stopped") == 1)


@pytest.fixture
def far(own):
    """A daemon that listens on an address that is not loopback, in a network of its own."""
    own.leave()
    own.config.write_text(f"[gateway]\nbind = '{ADDRESS}'\nallow_plaintext = true\n")
    with Network() as network:
        own.wrapper, own.network = network.enter, network
        own.start()
        yield own
        own.stop()  # nothing reaches it from outside its network


def test_off_loopback_the_page_needs_the_key(far):
    def ask(path: str, key: str) -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return far.network.ask(f"http://{ADDRESS}:{far.port}{path}", headers)

    status, body = ask("/metrics", "")
    assert status == 401
    assert json.loads(body)["error"]["code"] == "unauthenticated"
    assert ask("/metrics", "wrong")[0] == 401
    status, body = ask("/metrics", (far.state / "api-key").read_text().strip())
    assert status == 200
    assert "dsec_sandboxes" in prometheus.parse(body)
    assert ask("/healthz", "")[0] == 200

"""A coordinator and its worker on an address that is not loopback: TLS with a certificate on each
side, and who does not get in.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority
from cluster import Cluster, to_toml
from conftest import TINY, serve
from daemon import Daemon
from host import eventually
from network import ADDRESS, Network

UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


class FarDaemon(Daemon):
    network: Network

    @property
    def door(self) -> str:
        here = self.role == "coordinator"
        return f"https://{ADDRESS}:{self.port}" if here else f"http://127.0.0.1:{self.port}"

    def get(self, path: str) -> tuple[int, dict[str, Any]]:
        status, body = self.network.ask(self.door + path)
        return status, json.loads(body)

    def said(self, event: str) -> list[dict[str, Any]]:
        """What it has logged of this event so far."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        whole = [line for line in lines if line.startswith("{") and line.endswith("}")]
        return [found for found in map(json.loads, whole) if found.get("event") == event]

    def reload(self) -> None:
        before = len(self.said("reloaded"))
        os.kill(self.pid, signal.SIGHUP)
        assert eventually(lambda: len(self.said("reloaded")) > before), self.tail()


class FarCluster(Cluster):
    """A coordinator and a worker in a network of their own, and the authority that both trust."""

    process = FarDaemon

    def __init__(self, name: str, network: Network, directory: Path):
        self.network = network
        self.authority = Authority.make(directory)
        self.files = {
            role: (directory / f"{role}.pem", directory / f"{role}.key")
            for role in ("coordinator", "worker")
        }
        for role in self.files:
            self.certify(role)
        super().__init__(name, workers=1)
        certificate, key = self.files["coordinator"]
        gateway = {"bind": ADDRESS, "tls_cert": certificate, "tls_key": key}
        self.coordinator.config.write_text(
            to_toml({"gateway": gateway, "peer": {"ca_file": self.authority.file}})
        )
        for daemon in self.all:
            daemon.network, daemon.wrapper = network, network.enter

    def _worker(self, shared: dict[str, Any], i: int) -> dict[str, Any]:
        made = super()._worker(shared, i)
        certificate, key = self.files["worker"]
        link = {"ca_file": self.authority.file, "cert_file": certificate, "key_file": key}
        place = f"{ADDRESS}:{self.coordinator.port}"
        return {**made, "peer": {**made["peer"], **link, "coordinators": [place]}}

    def certify(self, role: str, authority: Authority | None = None, **how: Any) -> None:
        """Another certificate for one side, in the same files."""
        (authority or self.authority).issue(
            *self.files[role], **{"names": f"IP:{ADDRESS}", **how}
        )

    def of_role(self, role: str) -> FarDaemon:
        return self.coordinator if role == "coordinator" else self.workers[0]

    def dsec(self, *arguments: str) -> str:
        """What a client says that has no certificate."""
        done = subprocess.run(
            [*self.network.enter, sys.executable, "-m", "libdsec", *arguments],
            capture_output=True, text=True, timeout=60,
            env={**self.environment, "DSEC_CA": str(self.authority.file)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr + self.tail()
        return done.stdout


@pytest.fixture(scope="module")
def far(tiny_tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FarCluster]:
    with Network() as network:
        made = FarCluster("far", network, tmp_path_factory.mktemp("far"))
        yield from serve(made, lambda c: c.image_import(TINY, tiny_tree, "base"))


@pytest.fixture
def mended(far: FarCluster) -> Iterator[FarCluster]:
    """Afterwards both sides have good certificates and a link."""
    yield far
    for role in far.files:
        far.certify(role)
        far.of_role(role).reload()
    far.wait_joined()


def test_a_sandbox_on_another_machine(far: FarCluster):
    assert (far.state / "url").read_text().strip() == f"wss://{ADDRESS}:{far.port}"
    assert far.dsec("run", TINY, "--", "echo", "from afar") == "from afar\n"


@pytest.mark.parametrize(
    ("role", "how", "said"),
    [
        ("worker", {"days": -1}, "certificate has expired"),
        ("worker", {"authority": "another"}, "unable to get local issuer certificate"),
        ("coordinator", {"days": -1}, "certificate has expired"),
        ("coordinator", {"names": "IP:10.98.0.1"}, "IP address mismatch"),
    ],
    ids=["worker-expired", "worker-unknown", "coordinator-expired", "coordinator-elsewhere"],
)
def test_a_bad_certificate_makes_no_link_and_both_logs_say_why(
    mended: FarCluster, tmp_path: Path, role: str, how: dict[str, Any], said: str
):
    if "authority" in how:
        how = {"authority": Authority.make(tmp_path / "another")}
    mended.certify(role, **how)
    mended.of_role(role).reload()
    coordinator, worker = mended.coordinator, mended.workers[0]
    refused = len(coordinator.said("worker_refused"))
    before = len(worker.said("coordinator_unreachable"))
    coordinator.restart()  # links that stand go on with what they began with

    def why() -> list[str]:
        lines = worker.said("coordinator_unreachable")[before:]
        return [line["why"] for line in lines if said in line["why"]]

    assert eventually(why), mended.tail()
    if role == "worker":
        assert str(mended.files["worker"][0]) in why()[-1]
        assert eventually(lambda: len(coordinator.said("worker_refused")) > refused)
        last = coordinator.said("worker_refused")[-1]
        assert said in last["why"]
        assert last["ca_file"] == str(mended.authority.file)
    else:
        assert "gateway.tls_cert" in why()[-1]
        assert str(mended.authority.file) in why()[-1]
    assert mended.edges() != {"w1": "connected"}


def test_files_that_cannot_be_used_change_nothing(mended: FarCluster):
    worker = mended.workers[0]
    certificate, key = mended.files["worker"]
    good = certificate.read_bytes(), key.read_bytes()
    for file, text in ((certificate, "rubbish"), (key, "rubbish")):
        before = len(worker.said("reload_failed"))
        file.write_text(text)
        os.kill(worker.pid, signal.SIGHUP)
        assert eventually(lambda n=before: len(worker.said("reload_failed")) > n), worker.tail()
        assert str(file) in worker.said("reload_failed")[-1]["why"]
        certificate.write_bytes(good[0])
        key.write_bytes(good[1])
    key.chmod(0o644)
    before = len(worker.said("reload_failed"))
    os.kill(worker.pid, signal.SIGHUP)
    assert eventually(lambda: len(worker.said("reload_failed")) > before), worker.tail()
    assert "chmod 600" in worker.said("reload_failed")[-1]["why"]
    key.chmod(0o600)
    mended.coordinator.restart()
    mended.wait_joined()


def test_an_api_key_opens_no_link(far: FarCluster):
    key = (far.state / "api-key").read_text().strip()
    headers = {**UPGRADE, "Authorization": f"Bearer {key}"}
    status, body = far.network.ask(f"{far.coordinator.door}/v1/peer", headers)
    assert status == 401
    assert "peer.cert_file" in json.loads(body)["error"]["message"]


def test_a_link_from_another_host_is_refused_where_there_is_no_tls():
    with Network() as network:
        daemon = Daemon(
            "plain", f'[gateway]\nbind = "{ADDRESS}"\nallow_plaintext = true\n', role="coordinator"
        )
        daemon.wrapper = network.enter
        try:
            daemon.start()
            status, body = network.ask(f"http://{ADDRESS}:{daemon.port}/v1/peer", UPGRADE)
            assert status == 403
            assert "peer.ca_file" in json.loads(body)["error"]["message"]
            assert "worker_refused" in daemon.log.read_text()
        finally:
            daemon.stop()
            daemon.remove()

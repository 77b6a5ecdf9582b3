"""A coordinator and its workers as processes of one machine, for tests; each a `Daemon`."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Any

import host
import pytest
import tomllib
from daemon import Daemon

JOIN_SECONDS = 20
OF_ONE_PROCESS = {"launcher", "pid", "dsecd", "wrapper", "instance", "log", "config", "program"}
"""What a `Daemon` has and a cluster cannot have: a test that asks for it is skipped."""
UIDS = 1_000_000_000
AETHER_UIDS = 900_000_000


def to_toml(tables: dict[str, Any]) -> str:
    """TOML of one level of tables."""

    def line(key: str, value: Any) -> str:
        if isinstance(value, list):
            return f"{key} = [{', '.join(repr_of(v) for v in value)}]"
        return f"{key} = {repr_of(value)}"

    def repr_of(value: Any) -> str:
        return f'"{value}"' if isinstance(value, str | Path) else str(value).lower()

    plain = [line(k, v) for k, v in tables.items() if not isinstance(v, dict)]
    rest = [
        "\n".join([f"[{name}]", *(line(k, v) for k, v in table.items())])
        for name, table in tables.items()
        if isinstance(table, dict)
    ]
    return "\n".join([*plain, *rest]) + "\n"


class Cluster:
    """What a test uses of a `Daemon`, of all its processes together."""

    process: type[Daemon] = Daemon

    def __init__(self, name: str, workers: int = 2, config: str = "", **arguments: Any):
        """`config` is that of every process; `arguments` are `Daemon`'s, for every one of them."""
        self.coordinator = self.process(name, config, role="coordinator", **arguments)
        shared = tomllib.loads(config)
        self.workers = [
            self.process(
                f"{name}-w{i}", to_toml(self._worker(shared, i)), role="worker", **arguments
            )
            for i in range(1, workers + 1)
        ]

    def _worker(self, shared: dict[str, Any], i: int) -> dict[str, Any]:
        node = {
            **shared.get("node", {}),
            "name": f"w{i}",
            "uid_base": i * UIDS,
            "aether_uid_base": AETHER_UIDS + i * 50_000,
        }
        peer = {
            "coordinators": [f"127.0.0.1:{self.coordinator.port}"],
            "secret_file": self.coordinator.state / "peer-secret",
        }
        return {**shared, "node": node, "peer": peer}

    def __getattr__(self, name: str) -> Any:
        if name in OF_ONE_PROCESS:
            pytest.skip(f"SKIPPED: it is about {name} of one process; this is a cluster of several")
        raise AttributeError(name)

    @property
    def all(self) -> list[Daemon]:
        return [self.coordinator, *self.workers]

    def __getitem__(self, edge: str) -> Daemon:
        return self.workers[int(edge.removeprefix("w")) - 1]

    def of(self, sandbox_id: str) -> Daemon:
        """The worker that has a sandbox."""
        return self[sandbox_id.rpartition("-")[0]]

    def edges(self) -> dict[str, str]:
        """What the coordinator says of its workers."""
        return self.coordinator.get("/healthz")[1].get("edges", {})

    def joined(self) -> bool:
        return list(self.edges().values()).count("connected") == len(self.workers)

    def wait_joined(self) -> None:
        assert host.eventually(self.joined, JOIN_SECONDS), f"{self.edges()}\n{self.tail()}"

    # What follows has the names of Daemon's.

    @property
    def state(self) -> Path:
        return self.coordinator.state

    @property
    def port(self) -> int:
        return self.coordinator.port

    @property
    def environment(self) -> dict[str, str]:
        return self.coordinator.environment

    @property
    def running(self) -> bool:
        return all(d.running for d in self.all)

    def start(self) -> None:
        for daemon in self.all:
            if not daemon.running:
                daemon.start()
        self.wait_joined()

    def stop(self) -> None:
        for daemon in reversed(self.all):
            daemon.stop()

    def leave(self, how: signal.Signals = signal.SIGTERM) -> None:
        for daemon in self.all:
            daemon.leave(how)

    def kill(self) -> None:
        for daemon in self.all:
            daemon.kill()

    def restart(self) -> None:
        self.kill()
        self.start()

    def leaks(self, *more: str) -> str:
        return "".join(d.leaks(*more) for d in self.all)

    def live_leaks(self) -> str:
        return "".join(d.live_leaks() for d in self.workers) + self.coordinator.leaks()

    def remove(self) -> None:
        for daemon in self.all:
            daemon.remove()

    def tail(self, lines: int = 20) -> str:
        return "\n".join(f"--- {d.role}\n{d.tail(lines)}" for d in self.all)

    def image_import(self, name: str, source: Path | str, kind: str, *extra: str) -> None:
        self.workers[0].image_import(name, source, kind, *extra)
        for worker in self.workers[1:]:
            shutil.rmtree(worker.state / "images", ignore_errors=True)
            worker.borrow_images(self.workers[0].state)

    def borrow_images(self, other: Path) -> None:
        for worker in self.workers:
            worker.borrow_images(other)

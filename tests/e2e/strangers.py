"""A client of the protocol without libdsec: WebSocket, JSON, one thing after the other."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from daemon import Daemon
from websockets.sync.client import ClientConnection, connect

SECONDS = 30


def address_of(daemon: Daemon) -> str:
    return (daemon.state / "url").read_text().strip() + "/v1/ws"


def key_of(daemon: Daemon) -> str:
    return (daemon.state / "api-key").read_text().strip()


@contextlib.contextmanager
def join(
    daemon: Daemon, key: str | None = None, features: tuple[str, ...] = (), **options: Any
) -> Iterator[ClientConnection]:
    """A connection that has said hello; without a key it has none in its headers."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with connect(
        address_of(daemon), additional_headers=headers, max_size=None, **options
    ) as wire:
        hello = {"protocolVersion": 1, "client": "a stranger", "features": features}
        assert "hello" in ask(wire, 1, hello=hello)
        yield wire


def say(wire: ClientConnection, id: int, **body: Any) -> None:
    wire.send(json.dumps({"id": id, "body": body}))


def hear(wire: ClientConnection) -> tuple[int, dict[str, Any]]:
    """The next reply: whose it is, and its body."""
    reply = json.loads(wire.recv(SECONDS))
    return int(reply["id"]), reply["body"]


def ask(wire: ClientConnection, id: int, **body: Any) -> dict[str, Any]:
    say(wire, id, **body)
    answered, what = hear(wire)
    assert answered == id
    return what

"""The client protocol as a stranger speaks it: JSON text frames, word by word as docs/protocol.md
has them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from daemon import ROOT, Daemon
from images import TINY
from websockets.exceptions import ConnectionClosedError
from websockets.sync.client import ClientConnection, connect

PAGE = ROOT / "docs" / "protocol.md"
SECONDS = 30


@pytest.fixture
def wire(daemon: Daemon) -> Iterator[ClientConnection]:
    url = (daemon.state / "url").read_text().strip()
    key = (daemon.state / "api-key").read_text().strip()
    address = re.sub(r"^(http|ws)", "ws", url.rstrip("/"))
    if not address.endswith("/v1/ws"):
        address += "/v1/ws"
    headers = {"Authorization": f"Bearer {key}"}
    with connect(address, additional_headers=headers, max_size=None) as connection:
        yield connection


def ask(wire: ClientConnection, request: dict[str, Any]) -> dict[str, Any]:
    wire.send(json.dumps(request))
    answer = wire.recv(SECONDS)
    assert isinstance(answer, str), "text must be answered with text"
    reply: dict[str, Any] = json.loads(answer)
    return reply


def greet(wire: ClientConnection) -> None:
    hello = {"protocolVersion": 1, "client": "a stranger"}
    assert "hello" in ask(wire, {"id": 1, "body": {"hello": hello}})["body"]


def matches(said: Any, page: Any) -> bool:
    """Whether all that the page shows is there; the page leaves out what does not matter."""
    if isinstance(page, dict):
        return isinstance(said, dict) and all(matches(said.get(k), v) for k, v in page.items())
    return page == "…" or said == page


def conversation() -> list[tuple[str, str]]:
    text = PAGE.read_text()
    lines = text[text.index("## A conversation") :].split("```json\n")[1].split("```")[0].splitlines()
    return [(a[2:], b[2:]) for a, b in zip(lines[::2], lines[1::2], strict=True)]


def test_the_conversation_of_the_page_goes_as_it_says(wire: ClientConnection) -> None:
    sandbox = "…"
    for asks, answers in conversation():
        request = json.loads(asks.replace("IMAGE", TINY).replace("SANDBOX", sandbox))
        reply = ask(wire, request)
        if "createSandbox" in request["body"]:
            sandbox = reply["body"]["sandbox"]["sandboxId"]
        assert matches(reply, json.loads(answers.replace("SANDBOX", sandbox))), (asks, reply)
    assert sandbox != "…"


def test_megabytes_pass_as_text(wire: ClientConnection) -> None:
    greet(wire)
    create = {"image": TINY, "memoryMb": 64}
    made = ask(wire, {"id": 2, "body": {"createSandbox": create}})
    sandbox = made["body"]["sandbox"]["sandboxId"]
    content = "QUJD" * (2 << 20)  # 6 MiB of ABC
    write = {"sandboxId": sandbox, "path": "/big", "data": content}
    assert ask(wire, {"id": 3, "body": {"writeFile": write}})["body"]["fileWritten"]
    read = {"sandboxId": sandbox, "path": "/big"}
    assert ask(wire, {"id": 4, "body": {"readFile": read}})["body"]["fileData"]["data"] == content
    assert ask(wire, {"id": 5, "body": {"stopSandbox": {"sandboxId": sandbox}}})["body"]["sandbox"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"id":2,"body":{"exec":{"argv":"ls"}}}', "body.exec.argv must be a list"),
        ('{"id":2,"body":{"ping":null,"listImages":null}}', "body has two members"),
        ("ping", "not JSON at byte 1"),
        ("[" * 100_000, "nests too deep"),
    ],
)
def test_text_that_is_no_request_is_answered_and_ends_the_connection(
    wire: ClientConnection, text: str, says: str
) -> None:
    greet(wire)
    wire.send(text)
    error = json.loads(wire.recv(SECONDS))["body"]["error"]
    assert says in error["message"]
    with pytest.raises(ConnectionClosedError) as closed:
        wire.recv(SECONDS)
    assert closed.value.rcvd and closed.value.rcvd.code == 1007


def test_a_request_of_a_later_version_is_told_apart(wire: ClientConnection) -> None:
    greet(wire)
    error = ask(wire, {"id": 2, "body": {"teleport": {"to": "mars"}}})["body"]["error"]
    assert error["code"] == "unsupported"
    assert ask(wire, {"id": 3, "body": {"ping": None}})["body"] == {"pong": None}

"""The client protocol as a stranger speaks it: JSON text frames, word by word as docs/protocol.md
has them.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from daemon import ROOT, Daemon
from images import TINY
from websockets.exceptions import ConnectionClosedError
from websockets.sync.client import ClientConnection, connect

PAGE = ROOT / "docs" / "protocol.md"
STRANGER = Path(__file__).with_name("stranger.js")
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


def test_the_conversation_of_the_page_goes_as_it_says(wire: ClientConnection) -> None:
    text = PAGE.read_text()
    lines = text[text.index("## A conversation") :].split("```json\n")[1].split("```")[0].splitlines()
    sandbox = "…"
    for line in lines:
        direction, said = line[0], line[2:].replace("IMAGE", TINY).replace("SANDBOX", sandbox)
        if direction == ">":
            wire.send(said)
            continue
        reply = json.loads(wire.recv(SECONDS))
        sandbox = reply["body"].get("sandbox", {}).get("sandboxId", sandbox)
        assert matches(reply, json.loads(said)), (said, reply)
    assert sandbox != "…"


def node() -> list[str]:
    """Node.js, with the WebSocket that it has or else that of the package ws."""
    program = shutil.which("node")
    if program is None:
        pytest.skip("no node: install nodejs and node-ws")
    own = [program, "--experimental-websocket"]
    if subprocess.run([*own, "-e", "WebSocket"], capture_output=True).returncode == 0:
        return own
    if subprocess.run([program, "-e", "require('ws')"], capture_output=True).returncode != 0:
        pytest.skip("node has no WebSocket: install node-ws")
    return [program]


def test_a_client_written_from_the_page_alone_works(daemon: Daemon) -> None:
    assert len(STRANGER.read_text().splitlines()) <= 60
    done = subprocess.run(
        [*node(), STRANGER, daemon.state, TINY], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    steps = [json.loads(line) for line in done.stdout.splitlines()]
    assert matches(
        {step.pop("step"): step for step in steps},
        {
            "hello": {"protocolVersion": 1},
            "create": {"sandboxId": "…"},
            "exec": {"state": "ended", "exitCode": 7},
            "output": {"text": "1\n2\n3\n", "total": 12, "ended": True},
            "file": {"text": "héllo", "size": 6, "endOfFile": True},
            "error": {"code": "not_found", "retryable": False},
            "stop": {"phase": "stopped"},
        },
    )


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

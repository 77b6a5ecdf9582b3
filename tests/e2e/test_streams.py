"""Streams as they are on the wire: credit, slow readers, memory, packed messages; and through libdsec."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import TINY
from daemon import Daemon
from host import eventually
from websockets.sync.client import ClientConnection, connect

from libdsec import NotFoundError, Sandbox
from libdsec._codec import schema

SECONDS = 30
MEGABYTE = 1 << 20


def resident(pid: int) -> int:
    """Bytes of memory that the process holds now."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)[1]) * 1024


def settled(pid: int) -> int:
    """The most of it until that has not grown for a second."""
    most, since = 0, time.monotonic()

    def grows_no_more() -> bool:
        nonlocal most, since
        now = resident(pid)
        if now > most:
            most, since = now, time.monotonic()
        return time.monotonic() - since > 1

    assert eventually(grows_no_more, SECONDS)
    return most


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def raw_connection(daemon: Daemon, **options: Any) -> ClientConnection:
    url = (daemon.state / "url").read_text().strip() + "/v1/ws"
    key = (daemon.state / "api-key").read_text().strip()
    headers = {"Authorization": f"Bearer {key}"}
    return connect(url, additional_headers=headers, max_size=None, compression=None, **options)


class Wire:
    """A connection in text that wants streams."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._last = 0
        self.pieces: dict[int, list[dict[str, Any]]] = {}
        self.ask("hello", protocolVersion=1, client="wire", features=["streams"])

    def ask(self, request: str, **body: Any) -> Any:
        self._last += 1
        message = {"id": self._last, "body": {request: body or None}}
        self._connection.send(json.dumps(message))
        while True:
            reply = json.loads(self._connection.recv(SECONDS))
            if reply["id"] == str(self._last):
                return next(iter(reply["body"].values()))
            self._keep(reply)

    def until(self, condition: Any) -> None:
        while not condition():
            self._keep(json.loads(self._connection.recv(SECONDS)))

    def _keep(self, reply: dict[str, Any]) -> None:
        piece = reply["body"]["streamData"]
        assert reply["id"] == "0"
        self.pieces.setdefault(int(piece["streamId"]), []).append(piece)

    def data(self, stream: int) -> bytes:
        got = b""
        for piece in self.pieces.get(stream, []):
            assert int(piece["offset"]) == len(got)
            got += base64.b64decode(piece["data"])
        return got

    def end(self, stream: int) -> str:
        return self.pieces[stream][-1]["end"] if stream in self.pieces else "none"

    def open(self, stream: int, sb: Sandbox, command: str, credit: int, offset: int = 0) -> Any:
        output = {"sandboxId": sb.id, "commandId": command, "offset": offset}
        return self.ask("openStream", streamId=stream, credit=credit, source={"output": output})


@pytest.fixture
def wire(daemon: Daemon) -> Iterator[Wire]:
    with raw_connection(daemon) as connection:
        yield Wire(connection)


def test_two_hundred_megabytes_pass_in_constant_memory(daemon: Daemon, sandbox: Sandbox) -> None:
    size = 200 * MEGABYTE
    line = b"a line of output that is said again and again\n"
    command = sandbox.commands.start(
        f"yes '{line.decode().strip()}' | head -c {size}", output_limit=2 * size
    )
    before, most, got = resident(daemon.pid), 0, 0
    digest = hashlib.sha256()
    for name, data in command.stream():
        assert name == "stdout"
        got += len(data)
        digest.update(data)
        if got % (10 * MEGABYTE) < len(data):
            most = max(most, resident(daemon.pid))
    assert got == size
    expected = hashlib.sha256()
    block = line * (size // len(line) // 100)
    left = size
    while left > 0:
        expected.update(block[:left])
        left -= len(block)
    assert digest.digest() == expected.digest()
    assert most - before < 32 * MEGABYTE


def test_a_stream_without_credit_holds_up_nobody(wire: Wire, sandbox: Sandbox) -> None:
    size = 8 * MEGABYTE
    sandbox.commands.start(f"head -c {size} /dev/zero", command_id="c").wait(60)
    wire.open(1, sandbox, "c", credit=1000)
    wire.open(2, sandbox, "c", credit=2 * size)
    wire.open(3, sandbox, "c", credit=0)
    wire.until(lambda: wire.end(2) == "complete")
    assert wire.data(2) == bytes(size)
    assert wire.pieces[2][-1]["total"] == str(size)
    assert wire.data(1) == bytes(1000)
    assert 3 not in wire.pieces
    assert wire.ask("ping") is None
    assert wire.ask("streamCredit", streamId=1, bytes=size)["offset"] == "1000"
    wire.until(lambda: wire.end(1) == "complete")
    assert wire.data(1) == bytes(size)
    assert wire.ask("closeStream", streamId=3)["credit"] == "0"
    assert wire.ask("closeStream", streamId=3)["code"] == "not_found"


def test_a_client_that_never_reads_costs_a_bounded_amount(
    daemon: Daemon, sandbox: Sandbox
) -> None:
    sandbox.commands.start(f"head -c {64 * MEGABYTE} /dev/zero", command_id="c").wait(60)
    before = resident(daemon.pid)
    with raw_connection(daemon, ping_interval=None) as connection:  # a pong would be behind it all
        hello = {"protocolVersion": 1, "features": ["streams"]}
        source = {"output": {"sandboxId": sandbox.id, "commandId": "c"}}
        requests = [{"hello": hello}] + [
            {"openStream": {"streamId": i, "credit": 1 << 40, "source": source}} for i in range(64)
        ]
        for i, body in enumerate(requests, 1):
            connection.send(json.dumps({"id": i, "body": body}))
        with raw_connection(daemon) as other:
            assert Wire(other).ask("ping") is None
        # A piece of 128 KiB of each stream: what its socket does not take stays, no more comes.
        assert settled(daemon.pid) - before < 32 * MEGABYTE
        assert sandbox.commands.run("echo still").stdout == "still\n"
        # It was slowed down, not closed: each stream goes on when it reads.
        pieces: Counter[str] = Counter()
        while len(pieces) < 64 or min(pieces.values()) < 3:
            body = json.loads(connection.recv(SECONDS))["body"]
            if "streamData" in body:
                pieces[body["streamData"]["streamId"]] += 1
    assert eventually(lambda: resident(daemon.pid) - before < 32 * MEGABYTE, 20)


def test_a_stream_that_waits_costs_no_time(daemon: Daemon, wire: Wire, sandbox: Sandbox) -> None:
    sandbox.commands.run("mkfifo go", timeout=10)
    sandbox.commands.start("echo first; read line <go; echo $line", command_id="c")
    wire.open(1, sandbox, "c", credit=100)
    wire.until(lambda: wire.data(1) == b"first\n")
    before = cpu_seconds(daemon.pid)
    with pytest.raises(TimeoutError):
        wire._connection.recv(2)
    assert cpu_seconds(daemon.pid) - before < 0.2
    sandbox.commands.run("echo second >go", timeout=10)
    wire.until(lambda: wire.end(1) == "complete")
    assert wire.data(1) == b"first\nsecond\n"


def test_a_stream_says_so_when_its_sandbox_is_stopped(wire: Wire, sandbox: Sandbox) -> None:
    sandbox.commands.start("echo so far; sleep 999", command_id="c")
    wire.open(1, sandbox, "c", credit=100)
    wire.until(lambda: wire.data(1) == b"so far\n")
    sandbox.stop()
    wire.until(lambda: wire.end(1) != "none")
    assert wire.end(1) == "failed"
    assert wire.pieces[1][-1]["error"]["code"] == "sandbox_failed"


def test_a_stream_is_opened_again_where_a_killed_daemon_left_it(own: Daemon) -> None:
    size = 4 * MEGABYTE
    with Sandbox.create(TINY, memory_mb=64) as sb:
        sb.commands.start("seq 1 600000; read line", command_id="c", output_limit=64 * MEGABYTE)
        with raw_connection(own) as connection:
            wire = Wire(connection)
            wire.open(1, sb, "c", credit=size // 2)
            wire.until(lambda: len(wire.data(1)) == size // 2)
            own.restart()
        begin = wire.data(1)
        with raw_connection(own) as connection:
            wire = Wire(connection)
            wire.open(9, sb, "c", credit=size, offset=len(begin))
            wire.until(lambda: wire.end(9) == "complete")
        rest = b"".join(base64.b64decode(piece["data"]) for piece in wire.pieces[9])
        assert begin + rest == b"".join(b"%d\n" % i for i in range(1, 600_001))


def test_files_and_output_are_streamed_by_the_library(sandbox: Sandbox) -> None:
    content = os.urandom(5_000_003)
    sandbox.files.write("/big", content)
    pieces = list(sandbox.files.stream("/big"))
    assert b"".join(pieces) == content
    assert max(map(len, pieces)) <= MEGABYTE
    with pytest.raises(NotFoundError):
        list(sandbox.files.stream("/nothing"))
    heard: list[bytes] = []
    result = sandbox.commands.run("echo out; echo err >&2; exit 3", on_stdout=heard.append)
    assert heard == [b"out\n"]
    assert (result.exit_code, result.stdout, result.stderr) == (3, "out\n", "err\n")


def test_messages_are_packed_if_the_client_chooses(daemon: Daemon) -> None:
    with raw_connection(daemon) as connection:
        hello = schema.Request.new_message()
        hello.id = 1
        hello.body.init("hello").protocolVersion = 1
        hello.body.hello.packing = "packed"
        connection.send(hello.to_bytes())
        with schema.Reply.from_bytes(connection.recv(SECONDS)) as reply:
            assert reply.body.hello.packing == "packed"
        ping = schema.Request.new_message()
        ping.id = 2
        ping.body.ping = None
        connection.send(ping.to_bytes_packed())
        answer = connection.recv(SECONDS)
        reply = schema.Reply.from_bytes_packed(answer)
        assert (reply.id, str(reply.body.which())) == (2, "pong")
        assert len(answer) < len(reply.as_builder().to_bytes())

"""Clients that do not keep to the protocol: each is told what is wrong, or its connection ends; others notice nothing,
and nothing of it stays in the daemon.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import TINY
from daemon import Daemon
from host import eventually
from test_streams import raw_connection, resident
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from libdsec import ExecFailedError, Sandbox, TooLargeError
from libdsec._codec import schema

SECONDS = 30
MEGABYTE = 1 << 20


def connections(port: int) -> int:
    """That the daemon's end has not closed."""
    established, close_wait = "01", "08"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    local = f":{port:04X}"
    return sum(r[1].endswith(local) and r[3] in (established, close_wait) for r in rows)


@pytest.fixture(autouse=True)
def nothing_stays(daemon: Daemon) -> Iterator[None]:
    """Connections go, and the daemon answers everybody else."""
    with Sandbox.create(TINY, memory_mb=64) as sb:
        assert sb.commands.run("echo before").stdout == "before\n"
        before = connections(daemon.port)
        assert before >= 1
        yield
        assert sb.commands.run("echo after").stdout == "after\n"
        assert eventually(lambda: connections(daemon.port) <= before, 20)


@pytest.fixture
def raw(daemon: Daemon) -> Iterator[ClientConnection]:
    """A connection that has said hello in binary."""
    with contextlib.suppress(ConnectionClosed), raw_connection(daemon) as connection:
        connection.send(message(1, lambda body: setattr(body.init("hello"), "protocolVersion", 1)))
        assert answer(connection) == "hello"
        yield connection


def message(number: int, fill: Any) -> bytes:
    request = schema.Request.new_message()
    request.id = number
    fill(request.body)
    data: bytes = request.to_bytes()
    return data


def answer(connection: ClientConnection) -> str:
    """The member of the reply, or the code of the error."""
    with schema.Reply.from_bytes(connection.recv(SECONDS)) as reply:
        member = str(reply.body.which())
        return str(reply.body.error.code) if member == "error" else member


def closes_with(connection: ClientConnection) -> int:
    with pytest.raises(ConnectionClosed) as closed:
        while True:
            connection.recv(SECONDS)
    assert closed.value.rcvd is not None
    return closed.value.rcvd.code


PING = message(2, lambda body: setattr(body, "ping", None))


def unknown_member() -> bytes:
    data = bytearray(message(77, lambda body: setattr(body, "ping", None)))
    (at,) = (
        i for i in range(16, len(data), 2) if data[i : i + 2] == struct.pack("<H", 2)
    )  # the union's tag is the only 16-bit word with the number of `ping`
    data[at : at + 2] = struct.pack("<H", 999)
    return bytes(data)


def wild_pointer() -> bytes:
    """A list that claims to lie far outside of the message."""
    data = message(2, lambda body: setattr(body.init("getSandbox"), "sandboxId", "x" * 16))
    words = [data[i : i + 8] for i in range(0, len(data), 8)]
    last = max(i for i, w in enumerate(words) if w[0] & 3 == 1 and w[4] & 7 == 2)
    words[last] = struct.pack("<I", 0x7FFFFFFD) + words[last][4:]
    return b"".join(words)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "protocol"),
        (b"no message", "protocol"),
        (PING[:-8], "protocol"),
        (PING + bytes(8), "protocol"),
        (struct.pack("<II", 0xFFFFFFFF, 1) + bytes(64), "protocol"),
        (struct.pack("<II", 0, 0x7FFFFFFF) + bytes(64), "protocol"),
    ],
    ids=["empty", "rubbish", "truncated", "longer", "segments", "size"],
)
def test_what_is_no_message_is_answered_and_ends_the_connection(
    raw: ClientConnection, data: bytes, code: str
) -> None:
    raw.send(data)
    assert answer(raw) == code
    assert closes_with(raw) == 1007


@pytest.mark.parametrize(
    ("data", "code"),
    [(unknown_member(), "unsupported"), (wild_pointer(), "protocol")],
    ids=["unknown-member", "wild-pointer"],
)
def test_a_request_that_cannot_be_is_answered_and_the_connection_goes_on(
    raw: ClientConnection, data: bytes, code: str
) -> None:
    raw.send(data)
    assert answer(raw) == code
    raw.send(PING)
    assert answer(raw) == "pong"


def test_a_message_over_the_limit_is_refused_by_its_header(
    daemon: Daemon, raw: ClientConnection
) -> None:
    before = resident(daemon.pid)
    with contextlib.suppress(ConnectionClosed):
        raw.send(bytes(17 * MEGABYTE))
    assert closes_with(raw) == 1009
    assert resident(daemon.pid) - before < 8 * MEGABYTE


def test_text_that_is_not_utf_8_is_refused_in_both_encodings(
    daemon: Daemon, raw: ClientConnection
) -> None:
    create = message(2, lambda body: setattr(body.init("createSandbox"), "image", "name"))
    raw.send(create.replace(b"name", b"\xff\xfe\xfd\xfc"))
    assert answer(raw) in ("not_found", "invalid_argument")
    with raw_connection(daemon) as other:
        other.send(b'{"id":1,"body":{"hello":{"client":"\xff"}}}', text=True)
        assert closes_with(other) == 1007


@pytest.mark.parametrize("field", ["sandboxId", "commandId"])
def test_an_id_of_a_megabyte_is_an_error_of_ordinary_size(
    raw: ClientConnection, field: str
) -> None:
    def fill(body: Any) -> None:
        ref = body.init("getCommand")
        ref.sandboxId = "e0-aaaaaaaaaaaaaaaa"
        setattr(ref, field, "x" * MEGABYTE)

    raw.send(message(2**64 - 1, fill))
    reply = raw.recv(SECONDS)
    assert len(reply) < 8192
    with schema.Reply.from_bytes(reply) as read:
        assert read.id == 2**64 - 1
        assert read.body.error.code in ("invalid_argument", "not_found")


def test_ten_megabytes_of_arguments_and_no_program_are_typed(daemon: Daemon) -> None:
    with Sandbox.create(TINY, memory_mb=64) as sb:
        with pytest.raises(TooLargeError, match="8 MiB"):
            sb.commands.run(["echo", *["x" * 100_000] * 100], timeout=20)
        for argv in (["no-such-program"], ["/etc"]):
            with pytest.raises(ExecFailedError):
                sb.commands.run(argv, timeout=20)
        assert sb.commands.run("echo whole").stdout == "whole\n"


@pytest.mark.parametrize("cut", [1, 3, 7, 20])
def test_a_client_that_vanishes_within_a_message_is_forgotten(
    daemon: Daemon, raw: ClientConnection, cut: int
) -> None:
    frame = b"\x82" + bytes([0x80 | len(PING)]) + bytes(4) + PING
    assert len(PING) < 126
    raw.socket.sendall(frame[:cut])
    raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    raw.socket.close()  # a reset


def test_a_client_that_vanishes_within_a_request_leaves_no_sandbox(daemon: Daemon) -> None:
    before = {s.id for s in Sandbox.list()}
    with raw_connection(daemon) as connection:
        hello = {"id": 1, "body": {"hello": {"protocolVersion": 1}}}
        create = {"id": 2, "body": {"createSandbox": {"image": TINY, "memoryMb": 64}}}
        connection.send(json.dumps(hello))
        connection.send(json.dumps(create))
        connection.recv(SECONDS)
        connection.socket.shutdown(socket.SHUT_RDWR)
    assert eventually(lambda: not [s for s in Sandbox.list() if s.alive and s.id not in before], 30)


def test_requests_without_end_whose_replies_are_not_read_cost_a_bounded_amount(
    daemon: Daemon, raw: ClientConnection
) -> None:
    before = resident(daemon.pid)
    raw.socket.settimeout(1)
    frame = b"\x82" + bytes([0x80 | len(PING)]) + bytes(4) + PING
    sent, deadline = 0, time.monotonic() + 20
    # Our library's thread reads up to 16 frames and then no more, so that replies pile up.
    with contextlib.suppress(OSError):
        while sent < 64 * MEGABYTE and time.monotonic() < deadline:
            sent += raw.socket.send(frame * 1000)
    with Sandbox.create(TINY, memory_mb=64) as sb:
        assert sb.commands.run("echo beside").stdout == "beside\n"
    assert resident(daemon.pid) - before < 80 * MEGABYTE
    os.close(raw.socket.detach())

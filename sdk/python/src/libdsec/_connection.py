"""Requests over one WebSocket: numbers them, matches the replies, and knows how many are in flight.

Lives on one event loop. Every request ends: by its reply, by its own deadline, or with
ConnectionLost.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

from . import _codec, _transport
from ._config import Endpoint, Lease, trace_id
from ._streams import Stream
from .errors import DeadlineExceededError, DSecError, ProtocolError, UnsupportedError

CLIENT_NAME = "libdsec/0.1.0"
_GRACE_SECONDS = 2.0
"""How much longer than the server the client waits: the server's own answer says more."""
_MAX_UINT32 = 0xFFFFFFFF


class ConnectionLost(Exception):
    """The connection ended with requests in flight; they may be sent again, on another one."""


class Connection:
    """One handshaken connection. Made by `Connection.open`."""

    def __init__(
        self, endpoint: Endpoint, on_slot_freed: Callable[[], None], on_lost: Callable[[], None]
    ) -> None:
        self._endpoint = endpoint
        self._loop = asyncio.get_running_loop()
        self._on_slot_freed = on_slot_freed
        self._on_lost = on_lost
        self._websocket: _transport.WebSocket | None = None
        # Also holds requests that nobody waits for any more: the server counts them until it has
        # answered.
        self._pending: dict[int, asyncio.Future[tuple[str, Any]]] = {}
        self._streams: dict[int, Stream] = {}
        self._next_id = 1
        self.server = ""
        self.edge = ""
        self.max_streams = 0
        """How many the server has; 0 when it has none."""

    @classmethod
    async def open(
        cls,
        endpoint: Endpoint,
        lease: Lease,
        on_slot_freed: Callable[[], None],
        on_lost: Callable[[], None],
        timeout: float,
    ) -> Connection:
        """Connects and says hello. Raises a DSecError."""
        self = cls(endpoint, on_slot_freed, on_lost)
        started = self._loop.time()
        self._websocket = await _transport.connect(endpoint, self._message, self._closed, timeout)
        try:
            remaining = max(0.1, timeout - (self._loop.time() - started))
            hello = _codec.hello(CLIENT_NAME, lease.id, lease.milliseconds)
            member, value = await self.request(hello, "", remaining)
            if member == "error":
                raise value
            if member != "hello":
                raise ProtocolError(f"{endpoint.url} answered hello with {member}")
            self.server, self.edge = value.server, value.edge
            if _codec.FEATURE_STREAMS in value.features:
                self.max_streams = value.max_streams
            if value.version != _codec.PROTOCOL_VERSION:
                raise UnsupportedError(
                    f"{endpoint.url} speaks protocol version {value.version}, this library "
                    f"{_codec.PROTOCOL_VERSION}; upgrade the older of the two",
                    object=endpoint.url,
                )
        except BaseException:
            self._websocket.abort()
            raise
        return self

    @property
    def is_open(self) -> bool:
        return self._websocket is not None and self._websocket.is_open

    @property
    def in_flight(self) -> int:
        return len(self._pending)

    async def request(
        self, fill: _codec.Fill, idempotency_key: str, timeout: float
    ) -> tuple[str, Any]:
        """Sends one request and returns (union member, value) of its reply."""
        assert self._websocket is not None
        if not self._websocket.is_open:
            raise ConnectionLost("closed")
        deadline_ms = min(_MAX_UINT32, max(1, math.ceil(timeout * 1000)))
        request_id, message = self._numbered(fill, deadline_ms, idempotency_key)
        reply: asyncio.Future[tuple[str, Any]] = self._loop.create_future()
        self._pending[request_id] = reply
        timer = self._loop.call_later(timeout + _GRACE_SECONDS, self._expire, reply, timeout)
        try:
            self._websocket.send(message)
            await self._websocket.drain()
            return await reply
        finally:
            timer.cancel()
            reply.cancel()  # no effect when it has its result

    def _numbered(self, fill: _codec.Fill, deadline_ms: int, key: str) -> tuple[int, bytes]:
        request_id = self._next_id
        message = _codec.encode_request(request_id, deadline_ms, key, fill, trace_id())
        self._next_id += 1
        return request_id, message

    def _tell(self, fill: _codec.Fill) -> None:
        """Sends a request whose answer makes no difference."""
        if self.is_open:
            assert self._websocket is not None
            self._websocket.send(self._numbered(fill, 0, "")[1])

    @property
    def open_streams(self) -> int:
        return len(self._streams)

    async def open_stream(
        self, source: _codec.Source, credit: int, timeout: float
    ) -> tuple[str, Any]:
        """("stream", Stream), or the error."""
        if self.max_streams == 0:
            url = self._endpoint.url
            raise UnsupportedError(f"{url} has no streams; upgrade it", object=url)
        stream_id, self._next_id = self._next_id, self._next_id + 1
        stream = Stream(
            lambda size: self._tell(_codec.stream_credit(stream_id, size)),
            lambda: self._close_stream(stream_id),
        )
        self._streams[stream_id] = stream
        try:
            fill = _codec.open_stream(stream_id, source, credit)
            member, value = await self.request(fill, "", timeout)
        except BaseException:
            stream.close()
            raise
        if member != "stream":
            self._streams.pop(stream_id, None)
            return member, value
        return member, stream

    def _close_stream(self, stream_id: int) -> None:
        if self._streams.pop(stream_id, None) is not None:
            self._tell(_codec.close_stream(stream_id))
            self._on_slot_freed()

    def _stream_data(self, piece: _codec.StreamPiece) -> None:
        stream = self._streams.get(piece.stream_id)
        if stream is None:
            return  # closed meanwhile
        stream.arrived(piece)
        if piece.last:
            del self._streams[piece.stream_id]
            self._on_slot_freed()

    async def close(self) -> None:
        if self._websocket is not None:
            await self._websocket.close()

    def _expire(self, reply: asyncio.Future[tuple[str, Any]], timeout: float) -> None:
        if not reply.done():
            reply.set_exception(
                DeadlineExceededError(
                    f"{self._endpoint.url} gave no answer within {timeout:g} s",
                    object=self._endpoint.url,
                )
            )

    def _message(self, data: bytes) -> None:
        assert self._websocket is not None
        try:
            request_id, member, value = _codec.decode_reply(data)
        except DSecError:
            self._websocket.abort()  # out of step with the server: a new connection starts clean
            return
        if member == "streamData":
            self._stream_data(value)
            return
        reply = self._pending.pop(request_id, None)
        if reply is None:
            return
        if not reply.done():
            reply.set_result((member, value))
        self._on_slot_freed()

    def _closed(self, reason: str) -> None:
        pending, self._pending = self._pending, {}
        for reply in pending.values():
            if not reply.done():
                reply.set_exception(ConnectionLost(reason))
                reply.exception()  # retrieved: the waiter may have been cancelled meanwhile
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.lose(reason)
        self._on_slot_freed()
        self._on_lost()

"""One WebSocket to a daemon: bytes in, bytes out. Lives on one event loop; calls back there.

Built on the I/O-free protocol of `websockets` inside an asyncio.Protocol: replies are dispatched
from the read callback itself, which saves the task switch and the queue of its ready-made
connection. No compression: messages are small or already dense, and deflate would cost more than
the loopback saves.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import weakref
from collections.abc import Callable
from typing import Any

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import OPEN
from websockets.uri import parse_uri

from ._codec import MAX_MESSAGE_BYTES
from ._config import START_HINT, Endpoint
from ._tls import tls_context, tls_error
from .errors import (
    DSecError,
    InvalidArgumentError,
    PermissionDeniedError,
    ProtocolError,
    UnauthenticatedError,
    UnavailableError,
)

_KEEPALIVE_SECONDS = 15.0
_CLOSE_SECONDS = 2.0

_sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def _drop_inherited_sockets() -> None:
    """After fork(2): the child must neither use its parent's connections nor keep them open."""
    for sock in list(_sockets):
        fd = sock.detach()
        if fd >= 0:
            os.close(fd)


os.register_at_fork(after_in_child=_drop_inherited_sockets)


class WebSocket(asyncio.Protocol):
    """A connected, authenticated WebSocket. Made by `connect`."""

    def __init__(
        self,
        endpoint: Endpoint,
        on_message: Callable[[bytes], None],
        on_closed: Callable[[str], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._url = endpoint.url
        self._api_key = endpoint.api_key
        self._ws = ClientProtocol(parse_uri(endpoint.url), max_size=MAX_MESSAGE_BYTES)
        self._on_message = on_message
        self._on_closed = on_closed
        self._transport: asyncio.Transport | None = None
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._lost: asyncio.Future[None] = self._loop.create_future()
        self._writable = asyncio.Event()
        self._writable.set()
        self._fragments: list[bytes] = []
        self._heard_at = self._loop.time()
        self._keepalive: asyncio.TimerHandle | None = None
        self._closing: asyncio.TimerHandle | None = None  # the peer may never close its side

    # ---- for the owner

    @property
    def is_open(self) -> bool:
        return self._ws.state is OPEN and not self._lost.done()

    def send(self, message: bytes) -> None:
        """Queues one binary message. Call `drain` before the next large one."""
        self._ws.send_binary(message)
        self._flush()

    async def drain(self) -> None:
        """Waits until the kernel has taken most of what was queued."""
        if not self._writable.is_set():
            await self._writable.wait()

    async def close(self) -> None:
        """Closing handshake, bounded; idempotent."""
        if self._transport is None:
            return
        if self.is_open:
            self._ws.send_close(1000)
            self._flush()
        await asyncio.wait([self._lost], timeout=_CLOSE_SECONDS)
        self._transport.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        request = self._ws.connect()
        request.headers["Authorization"] = f"Bearer {self._api_key}"
        self._ws.send_request(request)
        self._flush()

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        self._ws.receive_data(data)
        for event in self._ws.events_received():
            if isinstance(event, Frame):
                self._frame(event)
            elif isinstance(event, Response):
                self._response(event)
        self._flush()
        if self._closing is None and self._ws.close_expected():
            self._closing = self._loop.call_later(_CLOSE_SECONDS, self.abort)

    def eof_received(self) -> None:
        self._ws.receive_eof()
        self._flush()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._keepalive, self._closing):
            if timer is not None:
                timer.cancel()
        self._writable.set()
        reason = str(exc) if exc else (self._ws.close_reason or "closed by the server")
        if not self._opened.done():
            self._opened.set_exception(
                UnavailableError(f"{self._url} broke the connection: {reason}")
            )
            self._opened.exception()  # retrieved: nobody may be waiting any more
        if not self._lost.done():
            self._lost.set_result(None)
        self._on_closed(reason)

    # ---- inner parts

    def _flush(self) -> None:
        assert self._transport is not None
        for data in self._ws.data_to_send():
            if data:
                self._transport.write(data)
            else:  # the protocol's sign for end of file
                self._transport.close()

    def _response(self, response: Response) -> None:
        if self._opened.done():
            return
        if self._ws.handshake_exc is None:
            self._opened.set_result(None)
            self._keepalive = self._loop.call_later(_KEEPALIVE_SECONDS, self._check_alive)
        else:
            error = handshake_error(self._url, response, self._ws.handshake_exc)
            self._opened.set_exception(error)

    def _frame(self, frame: Frame) -> None:
        if frame.opcode in (Opcode.BINARY, Opcode.TEXT, Opcode.CONT):
            if frame.fin and not self._fragments:
                self._on_message(bytes(frame.data))
                return
            self._fragments.append(bytes(frame.data))
            if frame.fin:
                message = b"".join(self._fragments)
                self._fragments.clear()
                self._on_message(message)

    def _check_alive(self) -> None:
        """A peer that vanished without closing is noticed within three intervals."""
        silent = self._loop.time() - self._heard_at
        if silent > 2 * _KEEPALIVE_SECONDS:
            self.abort()
            return
        if silent > _KEEPALIVE_SECONDS / 2 and self.is_open:
            self._ws.send_ping(b"")
            self._flush()
        self._keepalive = self._loop.call_later(_KEEPALIVE_SECONDS, self._check_alive)


def handshake_error(url: str, response: Response, cause: Exception) -> DSecError:
    """The typed error for an HTTP answer that is no upgrade."""
    status = response.status_code
    if status == 400 and b"this port speaks TLS" in (response.body or b""):
        return ProtocolError(
            f"{url} speaks TLS: use {url.replace('ws://', 'wss://', 1)}", object=url
        )
    if status == 401:
        return UnauthenticatedError(
            f"{url} refused the API key; set DSEC_API_KEY, or DSEC_STATE to the daemon's state "
            "directory",
            object=url,
        )
    if status == 403:
        return PermissionDeniedError(f"{url} refused the connection (403)", object=url)
    if status in (429, 502, 503, 504):
        return UnavailableError(f"{url} takes no connections now ({status})", object=url)
    if isinstance(cause, InvalidHandshake):
        return ProtocolError(f"{url} is no dsecd: it answered {status} to the upgrade", object=url)
    return ProtocolError(f"{url} does not speak WebSocket: {cause}", object=url)


async def connect(
    endpoint: Endpoint,
    on_message: Callable[[bytes], None],
    on_closed: Callable[[str], None],
    timeout: float,
) -> WebSocket:
    """Connects and upgrades within `timeout` seconds, or raises a DSecError."""
    try:
        return await asyncio.wait_for(_connect(endpoint, on_message, on_closed), timeout)
    except asyncio.TimeoutError:
        raise UnavailableError(
            f"{endpoint.url} did not accept the connection within {timeout:g} s",
            object=endpoint.url,
        ) from None


async def _connect(
    endpoint: Endpoint, on_message: Callable[[bytes], None], on_closed: Callable[[str], None]
) -> WebSocket:
    loop = asyncio.get_running_loop()
    try:
        uri = parse_uri(endpoint.url)
        sock = await _open_socket(uri.host, uri.port)
    except ConnectionRefusedError:
        raise UnavailableError(
            f"nothing listens at {endpoint.url}: the daemon is not running; {START_HINT}",
            object=endpoint.url,
        ) from None
    except OSError as error:
        raise UnavailableError(
            f"cannot reach {endpoint.url}: {error}", object=endpoint.url
        ) from error
    except Exception as error:  # websockets' InvalidURI and UnicodeError of idna
        raise InvalidArgumentError(f"{endpoint.url!r} is no address: {error}") from error
    _sockets.add(sock)
    websocket = WebSocket(endpoint, on_message, on_closed)
    try:
        extra: dict[str, Any] = {}
        if uri.secure:
            extra = {"ssl": tls_context(endpoint), "server_hostname": uri.host}
        await loop.create_connection(lambda: websocket, sock=sock, **extra)
        await websocket._opened
    except BaseException as error:
        websocket.abort()
        sock.close()
        if isinstance(error, ssl.SSLError):
            raise tls_error(endpoint.url, error) from error
        if isinstance(error, OSError):
            raise UnavailableError(f"cannot reach {endpoint.url}: {error}") from error
        raise
    return websocket


def is_own(sock: socket.socket) -> bool:
    """Connected to itself: where nothing listens on a local port, the kernel may choose just that
    port for our end (tcp(7), simultaneous open), and a server could not come back to it.
    """
    return sock.getsockname() == sock.getpeername()


async def _open_socket(host: str, port: int) -> socket.socket:
    """The first address of the host that accepts."""
    loop = asyncio.get_running_loop()
    failure: OSError | None = None
    for family, kind, protocol, _, address in await loop.getaddrinfo(
        host, port, type=socket.SOCK_STREAM
    ):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            await loop.sock_connect(sock, address)
            if is_own(sock):
                raise ConnectionRefusedError("nothing listens there")
            return sock
        except OSError as error:
            sock.close()
            failure = error
        except BaseException:
            sock.close()
            raise
    raise failure or OSError(f"{host} has no address")

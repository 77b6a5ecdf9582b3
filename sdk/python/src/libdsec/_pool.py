"""The connections of one client to one daemon. Reconnects, and sends again what was in flight.

Lives on one event loop. Every request of the protocol may be sent twice (commands, creations and
writes carry an id or key of the client's choice, the others are idempotent), so a lost connection
is invisible unless it is not mended before the request's own deadline: a daemon may be killed and
started again in between. So is a part of the server that is restarting (`unavailable`).

A server reads no further request of a connection with 256 in flight, and a command that runs for an
hour is in flight for an hour. So long waits may fill only part of a connection, and when that is
full another is opened: a `kill` never stands behind a thousand waits.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any

from . import _codec
from ._config import Endpoint, Lease
from ._connection import Connection, ConnectionLost
from ._streams import Stream
from .errors import (
    DeadlineExceededError,
    DSecError,
    ProtocolError,
    RequestCancelledError,
    UnavailableError,
)

MAX_CONNECTIONS = 64
_LONG_SLOTS = _codec.MAX_IN_FLIGHT - 64
_CONNECT_SECONDS = 10.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_MAX_LOSSES = 40
"""Of the connection under one request; one that kills the server each time does so no more often.
"""
_MAX_REFUSALS = 6
"""How often a request is sent that is answered with `unavailable`."""


class _Use(Enum):
    """What a connection is wanted for, those that are served first first."""

    SHORT = 1
    LONG = 2
    STREAM = 3


def _has_room(connection: Connection, use: _Use) -> bool:
    if use is _Use.STREAM and 0 < connection.max_streams <= connection.open_streams:
        return False
    return connection.in_flight < (_LONG_SLOTS if use is _Use.LONG else _codec.MAX_IN_FLIGHT)


class Pool:
    """Requests to one endpoint."""

    def __init__(self, endpoint: Endpoint, lease: Lease) -> None:
        self.endpoint = endpoint
        self._lease = lease
        # A lease may not end because its client rests between two attempts to come back.
        self._longest_pause = min(_LONGEST_PAUSE, (lease.seconds or 120) / 4)
        self._loop = asyncio.get_running_loop()
        self._connections: list[Connection] = []
        self._connecting: asyncio.Task[None] | None = None
        self._connect_until = 0.0  # the latest deadline of those who wait for it
        self._last_failure: DSecError | None = None
        self._slot_waiters: dict[_Use, deque[asyncio.Future[None]]] = {u: deque() for u in _Use}
        self._was_connected = False
        self._keeps_lease = False
        self._keeper: asyncio.Task[None] | None = None
        self._closed = False

    async def open(self) -> None:
        """Connects now: a wrong address or key is told at once. Later every request does it."""
        if not self._was_connected:
            await self._grow(self._loop.time() + _CONNECT_SECONDS)

    async def close(self) -> None:
        """Closes all connections; what is in flight ends with RequestCancelledError. Idempotent."""
        self._closed = True
        for task in (self._connecting, self._keeper):
            if task is not None:
                task.cancel()
        self._wake()
        connections, self._connections = self._connections, []
        await asyncio.gather(*(c.close() for c in connections), return_exceptions=True)

    def keep_lease(self) -> None:
        """From now on a lost connection is mended although nobody asks for anything: sandboxes that
        are bound to the lease would end while their client thinks.
        """
        self._keeps_lease = True

    async def request(
        self,
        fill: _codec.Fill,
        expected: str,
        *,
        timeout: float,
        idempotency_key: str = "",
        long: bool = False,
    ) -> Any:
        """The value of the reply, which must be of the union member `expected`. Raises DSecError.

        `long`: the server is asked to hold the answer back until something has happened.
        """
        return await self._ask(
            _Use.LONG if long else _Use.SHORT,
            expected,
            timeout,
            lambda connection, remaining: connection.request(fill, idempotency_key, remaining),
        )

    async def open_stream(self, source: _codec.Source, credit: int, *, timeout: float) -> Stream:
        """A stream over a connection that has room for one. Raises DSecError."""
        stream: Stream = await self._ask(
            _Use.STREAM,
            "stream",
            timeout,
            lambda connection, remaining: connection.open_stream(source, credit, remaining),
        )
        return stream

    # ---- inner parts

    async def _ask(
        self,
        use: _Use,
        expected: str,
        timeout: float,
        send: Callable[[Connection, float], Awaitable[tuple[str, Any]]],
    ) -> Any:
        """Until it is answered with something else than `unavailable`, or `timeout` is over."""
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError("this client was opened on another event loop")
        deadline = self._loop.time() + timeout
        losses = refusals = 0
        while True:
            connection = self._free_connection(use) or await self._acquire(use, deadline)
            remaining = max(0.001, deadline - self._loop.time())
            try:
                member, value = await send(connection, remaining)
            except ConnectionLost as lost:
                losses += 1
                if losses < _MAX_LOSSES and await self._pause(losses - 1, deadline):
                    continue
                raise UnavailableError(
                    f"{self.endpoint.url} broke the connection {losses} times while it had this "
                    f"request: {lost}",
                    object=self.endpoint.url,
                ) from None
            if member == expected:
                return value
            if member != "error":
                raise ProtocolError(f"the server answered with {member} instead of {expected}")
            if isinstance(value, UnavailableError):
                refusals += 1
                if refusals < _MAX_REFUSALS and await self._pause(refusals, deadline):
                    continue
            raise value

    async def _pause(self, attempt: int, deadline: float) -> bool:
        """Waits before the next attempt, none before the one with number 0; False when there is no
        time for it.
        """
        delay = 0.0
        if attempt > 0:  # with jitter, because a whole fleet of clients comes back at once
            longest = min(_FIRST_PAUSE * 2.0 ** min(attempt - 1, 16), self._longest_pause)
            delay = random.uniform(longest / 2, longest)
        if self._loop.time() + delay >= deadline:
            return False
        await asyncio.sleep(delay)
        return True

    def _free_connection(self, use: _Use) -> Connection | None:
        for connection in self._connections:
            if connection.is_open and _has_room(connection, use):
                return connection
        return None

    async def _acquire(self, use: _Use, deadline: float) -> Connection:
        """A connection with a free slot, opened or waited for."""
        while True:
            if self._closed:
                raise RequestCancelledError("the client was closed")
            connection = self._free_connection(use)
            if connection is not None:
                return connection
            self._connections = [c for c in self._connections if c.is_open]
            if len(self._connections) < MAX_CONNECTIONS:
                await self._grow(deadline)
            else:
                await self._slot(use, deadline)

    async def _grow(self, deadline: float) -> None:
        """Opens one more connection; all who ask meanwhile wait for the same."""
        if self._connecting is None:
            self._last_failure = None
            self._connecting = asyncio.create_task(self._connect())
            self._connecting.add_done_callback(self._connect_done)
        connecting = self._connecting
        self._connect_until = max(self._connect_until, deadline)
        await asyncio.wait([connecting], timeout=max(0.0, deadline - self._loop.time()))
        if not connecting.done():
            raise _fresh(self._last_failure) or DeadlineExceededError(
                f"{self.endpoint.url} could not be reached in time", object=self.endpoint.url
            )
        if connecting.cancelled():
            raise RequestCancelledError("the client was closed")
        error = connecting.exception()
        if error is not None:
            raise _fresh(error) or error

    def _connect_done(self, task: asyncio.Task[None]) -> None:
        self._connecting = None
        if not task.cancelled():
            task.exception()  # retrieved: all waiters may have been cancelled

    async def _connect(self) -> None:
        """One attempt at first; later, when the daemon may be restarting, for as long as somebody
        waits.
        """
        attempt = 0
        while True:
            try:
                connection = await Connection.open(
                    self.endpoint, self._lease, self._wake, self._lost, _CONNECT_SECONDS
                )
                break
            except ConnectionLost as lost:
                failure: DSecError = UnavailableError(
                    f"{self.endpoint.url} broke the connection during the handshake: {lost}",
                    object=self.endpoint.url,
                )
            except (UnavailableError, DeadlineExceededError) as error:
                failure = error
            self._last_failure = failure
            attempt += 1
            if not self._was_connected or not await self._pause(attempt, self._connect_until):
                raise failure
        if self._closed:
            await connection.close()
            return
        self._was_connected = True
        self._connections.append(connection)

    def _lost(self) -> None:
        """A connection has gone."""
        if not self._keeps_lease or self._closed or self._keeper is not None:
            return
        if not any(c.is_open for c in self._connections):
            self._keeper = asyncio.create_task(self._come_back())

    async def _come_back(self) -> None:
        """For as long as it takes: while no daemon runs no lease ends."""
        try:
            while not any(c.is_open for c in self._connections):
                try:
                    await self._grow(self._loop.time() + _CONNECT_SECONDS)
                except (UnavailableError, DeadlineExceededError):
                    await asyncio.sleep(self._longest_pause)
        except (DSecError, asyncio.CancelledError):
            pass  # a key or version that is refused is told to the next request
        finally:
            self._keeper = None

    async def _slot(self, use: _Use, deadline: float) -> None:
        waiter: asyncio.Future[None] = self._loop.create_future()
        queue = self._slot_waiters[use]
        queue.append(waiter)
        try:
            await asyncio.wait([waiter], timeout=max(0.0, deadline - self._loop.time()))
        except asyncio.CancelledError:
            if waiter.done():
                self._wake()  # woken and cancelled at once: the room is another's
            raise
        finally:
            if not waiter.done():
                queue.remove(waiter)
        if not waiter.done():
            raise DeadlineExceededError(
                f"{MAX_CONNECTIONS} connections with {_codec.MAX_IN_FLIGHT} requests, or as many "
                "streams as the server has, each are in use"
            )

    def _wake(self) -> None:
        """A reply came or a connection went: whoever can use the room looks again, short requests
        first.
        """
        for use in _Use:
            queue = self._slot_waiters[use]
            if self._closed or len(self._connections) == 0:
                while queue:
                    queue.popleft().set_result(None)
            elif queue and self._free_connection(use) is not None:
                queue.popleft().set_result(None)
                return


def _fresh(error: BaseException | None) -> DSecError | None:
    """A copy, since several waiters raise it."""
    if not isinstance(error, DSecError):
        return None
    return type(error)(
        error.message, object=error.object, code=error.code, retryable=error.retryable
    )

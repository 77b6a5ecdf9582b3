"""Streams: what a source has (a command's output, a file) is sent by the server as it comes, as far
as it has credit. Lives on one event loop.

A stream belongs to one connection. `follow` opens it again, at where it had come to, when that is
lost or its daemon stops.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from . import _codec
from .errors import UnavailableError

if TYPE_CHECKING:
    from ._client import DSecClient

T = TypeVar("T")

WINDOW = 1 << 20
"""Bytes of one stream that may be on their way or wait to be taken."""
_PAUSE_SECONDS = 0.1
_MAX_LOSSES = 40
"""Of a stream, one after the other, over which nothing came."""


class StreamLost(Exception):
    """The connection ended; the stream may be opened again, on another one."""


class Stream:
    """One open stream. Made by `Connection.open_stream`."""

    def __init__(
        self, send_credit: Callable[[int], None], close: Callable[[], None]
    ) -> None:
        self._send_credit = send_credit
        self._close = close
        self._arrived: deque[_codec.StreamPiece] = deque()
        self._wake = asyncio.Event()
        self._lost: str | None = None
        self._taken = 0  # bytes that no credit was given for yet

    async def next(self) -> _codec.StreamPiece:
        """The next piece; taking it makes room for more. StreamLost."""
        while not self._arrived:
            if self._lost is not None:
                raise StreamLost(self._lost)
            self._wake.clear()
            await self._wake.wait()
        piece = self._arrived.popleft()
        self._taken += len(piece.data)
        if not piece.last and self._taken >= WINDOW // 2:
            self._send_credit(self._taken)
            self._taken = 0
        return piece

    def close(self) -> None:
        """Nothing more is sent. Idempotent, also after its end."""
        self._close()

    # ---- for its connection

    def arrived(self, piece: _codec.StreamPiece) -> None:
        self._arrived.append(piece)
        self._wake.set()

    def lose(self, reason: str) -> None:
        self._lost = reason
        self._wake.set()


async def follow(
    client: DSecClient, source: Callable[[int], _codec.Source], offset: int = 0
) -> AsyncGenerator[_codec.StreamPiece, None]:
    """All pieces of `source(offset)`, whatever connections and daemons are lost meanwhile. The last
    one says so. Raises DSecError.
    """
    losses = 0
    while True:
        stream = await client._open_stream(source(offset), WINDOW)
        try:
            while True:
                piece = await stream.next()
                if isinstance(piece.error, UnavailableError) and losses < _MAX_LOSSES:
                    break
                if piece.error is not None:
                    raise piece.error
                losses = 0
                offset = piece.offset + len(piece.data)
                yield piece
                if piece.last:
                    return
        except StreamLost as lost:
            if losses >= _MAX_LOSSES:
                raise UnavailableError(
                    f"the connection under a stream broke {losses} times: {lost}"
                ) from None
        finally:
            stream.close()
        losses += 1
        if losses > 1:
            await asyncio.sleep(_PAUSE_SECONDS)


async def merge(
    sources: Mapping[str, AsyncGenerator[T, None]],
) -> AsyncGenerator[tuple[str, T], None]:
    """What any of them gives, with its name, until all have ended. None runs ahead by more than one
    item.
    """
    nexts = {asyncio.ensure_future(anext(s)): name for name, s in sources.items()}
    try:
        while nexts:
            done, _ = await asyncio.wait(nexts, return_when=asyncio.FIRST_COMPLETED)
            for future in done:
                name = nexts.pop(future)
                try:
                    item = future.result()
                except StopAsyncIteration:
                    continue
                nexts[asyncio.ensure_future(anext(sources[name]))] = name
                yield name, item
    finally:
        for future in nexts:
            future.cancel()
        await asyncio.gather(*nexts, return_exceptions=True)
        for source in sources.values():
            await source.aclose()

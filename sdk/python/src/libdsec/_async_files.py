"""Files of one sandbox, asynchronously, in pieces that fit a message. Lives on its client's event
loop.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from . import _codec
from ._checks import octets
from ._streams import follow
from .errors import InvalidArgumentError, ProtocolError
from .models import FilePiece

if TYPE_CHECKING:
    from ._client import DSecClient


class AsyncFiles:
    """`sandbox.files`. Paths are absolute; `user` is whose permissions count (default: the
    sandbox's user).
    """

    def __init__(self, client: DSecClient, sandbox_id: str) -> None:
        self._client = client
        self._sandbox_id = sandbox_id

    async def read(self, path: str, *, user: str | None = None) -> bytes:
        """The whole file. NotFoundError, PermissionDeniedError."""
        pieces: list[bytes] = []
        offset = 0
        while True:
            piece: FilePiece = await self._client._request(
                _codec.read_file(
                    self._sandbox_id,
                    path,
                    offset=offset,
                    length=_codec.MAX_DATA_BYTES,
                    user=user or "",
                ),
                "fileData",
            )
            pieces.append(piece.data)
            offset += len(piece.data)
            if piece.end_of_file:
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)
            if not piece.data:
                raise ProtocolError(f"{path}: nothing came after {offset} bytes", object=path)

    async def stream(self, path: str, *, user: str | None = None) -> AsyncGenerator[bytes, None]:
        """The file in pieces, of which only a few are in memory at a time. As `read`."""

        def source(offset: int) -> _codec.Source:
            return _codec.file_source(self._sandbox_id, path, offset=offset, user=user or "")

        async for piece in follow(self._client, source):
            if piece.data:
                yield piece.data

    async def write(
        self, path: str, data: bytes | str, *, mode: int = 0, user: str | None = None
    ) -> None:
        """Replaces the file's content; text is written as UTF-8. Missing parent directories are
        made.

        `mode` (0: 0644) and `user` are a new file's. Large content goes in pieces, so that a reader
        inside may see the file half written.
        """
        view = memoryview(octets("data", data))
        for offset in range(0, max(1, len(view)), _codec.MAX_DATA_BYTES):
            piece = bytes(view[offset : offset + _codec.MAX_DATA_BYTES])
            await self._client._request(
                _codec.write_file(
                    self._sandbox_id,
                    path,
                    piece,
                    offset=offset,
                    mode=mode,
                    user=user or "",
                    # Sent twice, it is done once: a late first one would undo what came after it.
                    operation_id=uuid.uuid4().hex,
                ),
                "fileWritten",
            )

    async def read_text(
        self, path: str, *, user: str | None = None, encoding: str = "utf-8"
    ) -> str:
        """The whole file as text; bytes that are none become U+FFFD."""
        return (await self.read(path, user=user)).decode(encoding, errors="replace")

    async def write_text(
        self,
        path: str,
        text: str,
        *,
        mode: int = 0,
        user: str | None = None,
        encoding: str = "utf-8",
    ) -> None:
        """As `write`."""
        try:
            data = text.encode(encoding)
        except (AttributeError, LookupError, UnicodeError) as error:
            raise InvalidArgumentError(f"text cannot be written as {encoding}: {error}") from error
        await self.write(path, data, mode=mode, user=user)

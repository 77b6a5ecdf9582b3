"""Arguments that no server could make sense of, told as InvalidArgumentError. Pure."""

from __future__ import annotations

import os

from .errors import InvalidArgumentError

_LONGEST_SECONDS = 2**32


def seconds(what: str, value: float, *, least: float | None = None) -> float:
    """A positive number of seconds, or one from `least` on."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    long_enough = number and (value > 0 if least is None else value >= least)
    if not long_enough or not value < _LONGEST_SECONDS:  # NaN is neither
        wanted = "a positive number of seconds" if least is None else f"{least:g} or more seconds"
        raise InvalidArgumentError(f"{what} must be {wanted}, not {value!r}")
    return value


def octets(what: str, value: object) -> bytes:
    """Text as UTF-8, bytes as they are."""
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeError as error:
            raise InvalidArgumentError(f"{what} is no text: {error}") from error
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise InvalidArgumentError(f"{what} must be text or bytes, not {type(value).__name__}")
    return bytes(value)


def text(what: str, value: object) -> str | None:
    """Text, or nothing."""
    if value is not None and not isinstance(value, str):
        raise InvalidArgumentError(f"{what} must be text, not {type(value).__name__}")
    return value


def path(what: str, value: object) -> str | None:
    """A path that a file can have, as text, or nothing."""
    if value is None:
        return None
    name = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(name, str):
        raise InvalidArgumentError(f"{what} must be a path, not {type(value).__name__}")
    if "\0" in name:
        raise InvalidArgumentError(f"{what} is no path: {name!r} has a NUL character")
    return name

"""Where the daemon is and with which key: arguments, then the environment, then the state
directory. Pure but for reading two small files; raises DSecError subclasses whose messages say what
to do.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from . import _checks
from .errors import InvalidArgumentError, PermissionDeniedError, UnavailableError

DEFAULT_STATE = "/var/lib/dsec"
START_HINT = "start it with `scripts/quickstart` or `dsecd serve --role=all`"


@dataclass(frozen=True)
class Endpoint:
    """A daemon and the key to it. Hashable: clients are shared by it."""

    url: str
    """ws:// or wss:// address of the WebSocket."""
    api_key: str
    ca: str | None = None
    """PEM file of the certificates that sign a wss:// server's; None: those of this system."""

    def __repr__(self) -> str:
        return f"Endpoint({self.url!r})"  # never the key


@dataclass(frozen=True)
class Lease:
    """What the sandboxes of one client live by. The same on all its connections, so that one that
    comes back in time finds them.
    """

    seconds: float | None = None
    """From the loss of the last connection to their end; None: the server's default."""
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def milliseconds(self) -> int:
        """As the protocol wants it: 0 is the server's default."""
        return 0 if self.seconds is None else max(1, round(self.seconds * 1000))


def make_lease(seconds: float | None) -> Lease:
    if seconds is not None and not _checks.seconds("lease_seconds", seconds) < 2**32 / 1000:
        raise InvalidArgumentError(f"lease_seconds is too long: {seconds!r}")
    return Lease(seconds)


def resolve(
    url: str | None = None,
    api_key: str | None = None,
    state: str | os.PathLike[str] | None = None,
    ca: str | os.PathLike[str] | None = None,
) -> Endpoint:
    """The endpoint to use. `DSEC_URL`, `DSEC_API_KEY`, `DSEC_STATE` and `DSEC_CA` stand in for what
    is not given.

    Naming a state directory in the call outranks the environment's address and key.
    """
    url, api_key = _checks.text("url", url), _checks.text("api_key", api_key)
    state, ca = _checks.path("state", state), _checks.path("ca", ca)
    environ = {} if state is not None else os.environ
    directory = Path(state or os.environ.get("DSEC_STATE") or DEFAULT_STATE)
    url = url or environ.get("DSEC_URL") or _read(directory / "url", "address", "DSEC_URL")
    api_key = api_key or environ.get("DSEC_API_KEY")
    if not api_key:
        api_key = _read(directory / "api-key", "API key", "DSEC_API_KEY")
    if not api_key.isascii() or not api_key.isprintable():
        raise InvalidArgumentError("the API key holds characters that no key has")
    ca = ca or os.environ.get("DSEC_CA")
    return Endpoint(websocket_url(url), api_key, ca or None)


def trace_id() -> str:
    """What joins the requests of this process in logs and events, if the environment names it."""
    return os.environ.get("DSEC_TRACE_ID", "")


def websocket_url(url: str) -> str:
    """`http://host:port`, `ws://host:port/v1/ws` or `host:port` as the WebSocket's address."""
    if "://" not in url:
        url = f"ws://{url}"
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port is not None else ""
    except ValueError as error:
        raise InvalidArgumentError(f"{url!r} is no address: {error}", object=url) from error
    scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
    if scheme not in ("ws", "wss") or not parts.hostname:
        raise InvalidArgumentError(
            f"{url!r} is no address of a daemon: use http://HOST:PORT or ws://HOST:PORT", object=url
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    path = parts.path if parts.path not in ("", "/") else "/v1/ws"
    return f"{scheme}://{host}{port}{path}"


def _read(file: Path, what: str, variable: str) -> str:
    try:
        text = file.read_text(encoding="utf-8").strip()
    except (FileNotFoundError, NotADirectoryError):
        raise UnavailableError(
            f"no {what} of a dsecd: {file} does not exist, so no daemon runs with that state "
            f"directory; {START_HINT}, or set {variable} (or DSEC_STATE)",
            object=str(file),
        ) from None
    except PermissionError:
        raise PermissionDeniedError(
            f"the {what} in {file} may be read by its owner only; run as that user "
            f"or set {variable}",
            object=str(file),
        ) from None
    except (OSError, UnicodeError) as error:
        raise UnavailableError(f"cannot read {file}: {error}", object=str(file)) from error
    if not text:
        raise UnavailableError(f"{file} is empty; {START_HINT}", object=str(file))
    return text

"""TLS to a daemon: whom to trust, and what went wrong in words that name the remedy."""

from __future__ import annotations

import ssl

from ._config import Endpoint
from .errors import (
    DSecError,
    InvalidArgumentError,
    ProtocolError,
    UnauthenticatedError,
    UnavailableError,
)

# X509_V_ERR_… of OpenSSL, see verify(1ssl).
_NOT_YET, _EXPIRED, _WRONG_NAMES = 9, 10, (62, 64)

_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
"""What OpenSSL makes of bytes that are no TLS."""

_NO_COMMON_VERSION = ("TLSV1_ALERT_PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL")


def tls_context(endpoint: Endpoint) -> ssl.SSLContext:
    """Verifies certificate and name; with `ca` it trusts that file alone."""
    try:
        return ssl.create_default_context(cafile=endpoint.ca)
    except (OSError, ssl.SSLError) as error:
        raise InvalidArgumentError(
            f"ca {endpoint.ca!r} (DSEC_CA) holds no certificates in PEM: {error}",
            object=endpoint.ca or "",
        ) from error


def tls_error(url: str, error: ssl.SSLError) -> DSecError:
    """The typed error for a handshake that failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return UnauthenticatedError(f"{url}: {_distrust(error)}", object=url)
    if error.reason in _NO_TLS:
        plain = url.replace("wss://", "ws://", 1)
        return ProtocolError(f"{url} does not speak TLS: {plain} may be meant", object=url)
    if error.reason in _NO_COMMON_VERSION:
        return ProtocolError(f"{url} and this Python have no TLS version in common", object=url)
    return UnavailableError(f"cannot reach {url}: {error}", object=url)


def _distrust(error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code == _EXPIRED:
        return "the server's certificate has expired: renew it and send dsecd a SIGHUP"
    if error.verify_code == _NOT_YET:
        return "the server's certificate is not valid yet: look at the clocks"
    if error.verify_code in _WRONG_NAMES:
        return (
            f"the server's certificate is for another name ({error.verify_message}): connect by a "
            "name that it has"
        )
    return (
        f"the server's certificate is signed by nobody who is trusted ({error.verify_message}): "
        "give the certificate of its CA as ca= or DSEC_CA"
    )

"""Failures of the platform, one exception class per error code of the wire (src/base/error.hpp).

A command that exits non-zero is a result, never one of these: a trainer that catches DSecError
knows that the infrastructure, not the agent, is to blame. `check=True` raises CommandFailed, which
is deliberately not a DSecError.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .models import CommandResult


class DSecError(Exception):
    """Something other than the command itself went wrong.

    `code` is stable and machine-readable, `object` the id or name of what it is about (may be
    empty), `retryable` whether the same request can succeed later.
    """

    code: str = "internal"
    exit_code: int = 70
    retryable: bool = False

    def __init__(
        self,
        message: str,
        *,
        object: str = "",
        code: str | None = None,
        retryable: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.object = object
        if code is not None:
            self.code = code
        if retryable is not None:
            self.retryable = retryable

    def __str__(self) -> str:
        return f"{self.message} ({self.code})"

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions cross process pools by pickle, which would lose keyword-only arguments.
        return (_rebuild, (type(self), self.message, self.object, self.code, self.retryable))


def _rebuild(
    cls: type[DSecError], message: str, object_: str, code: str, retryable: bool
) -> DSecError:
    return cls(message, object=object_, code=code, retryable=retryable)


class InternalError(DSecError):
    """A bug of the platform, or an unexpected answer of the kernel."""

    code, exit_code, retryable = "internal", 70, False


class InvalidArgumentError(DSecError):
    """The request itself is wrong; sending it again cannot help."""

    code, exit_code, retryable = "invalid_argument", 64, False


class NotFoundError(DSecError):
    """No such sandbox, command, image or file."""

    code, exit_code, retryable = "not_found", 66, False


class AlreadyExistsError(DSecError):
    """The name is taken."""

    code, exit_code, retryable = "already_exists", 73, False


class ConflictError(DSecError):
    """The idempotency key was used before with another request."""

    code, exit_code, retryable = "conflict", 73, False


class UnauthenticatedError(DSecError):
    """No, unknown or revoked API key; or a server whose certificate is not to be trusted."""

    code, exit_code, retryable = "unauthenticated", 77, False


class PermissionDeniedError(DSecError):
    """Known, but not allowed; also file permissions inside a sandbox."""

    code, exit_code, retryable = "permission_denied", 77, False


class CapacityError(DSecError):
    """Not admitted until the deadline; the message names the scarce resource."""

    code, exit_code, retryable = "capacity", 75, True


class DeadlineExceededError(DSecError):
    """The request's own deadline passed."""

    code, exit_code, retryable = "deadline_exceeded", 75, True


class UnavailableError(DSecError):
    """The daemon is down, restarting or out of reach."""

    code, exit_code, retryable = "unavailable", 69, True


class UnsupportedError(DSecError):
    """This host, backend or version cannot do it."""

    code, exit_code, retryable = "unsupported", 69, False


class WrongPhaseError(DSecError):
    """Illegal in the sandbox's present phase."""

    code, exit_code, retryable = "wrong_phase", 65, False


class SandboxFailedError(DSecError):
    """The sandbox died; the message gives the cause."""

    code, exit_code, retryable = "sandbox_failed", 76, False


class TooLargeError(DSecError):
    """A limit of the protocol or of a file transfer."""

    code, exit_code, retryable = "too_large", 65, False


class NoShellError(DSecError):
    """A shell command in an image that has neither /bin/bash nor /bin/sh."""

    code, exit_code, retryable = "no_shell", 72, False


class ExecFailedError(DSecError):
    """The program could not be started: not found, not executable, bad cwd or user."""

    code, exit_code, retryable = "exec_failed", 72, False


class IoError(DSecError):
    """Disk full and other I/O errors of the host."""

    code, exit_code, retryable = "io", 74, True


class ProtocolError(DSecError):
    """A malformed frame or message."""

    code, exit_code, retryable = "protocol", 76, False


class CorruptError(DSecError):
    """A damaged store, image or record."""

    code, exit_code, retryable = "corrupt", 74, False


class RequestCancelledError(DSecError):
    """Given up because the other side went away or the daemon is stopping."""

    code, exit_code, retryable = "cancelled", 75, True


ERROR_CLASSES: dict[str, type[DSecError]] = {
    cls.code: cls
    for cls in (
        InternalError,
        InvalidArgumentError,
        NotFoundError,
        AlreadyExistsError,
        ConflictError,
        UnauthenticatedError,
        PermissionDeniedError,
        CapacityError,
        DeadlineExceededError,
        UnavailableError,
        UnsupportedError,
        WrongPhaseError,
        SandboxFailedError,
        TooLargeError,
        NoShellError,
        ExecFailedError,
        IoError,
        ProtocolError,
        CorruptError,
        RequestCancelledError,
    )
}


def from_wire(code: str, message: str, object_: str, retryable: bool) -> DSecError:
    """The exception for an error reply. A code of a newer server stays a plain DSecError with that
    code.
    """
    cls = ERROR_CLASSES.get(code, DSecError)
    return cls(message, object=object_, code=code, retryable=retryable)


class CreateManyError(DSecError):
    """Fewer sandboxes than `min_ready` came to be. Those that did have been stopped again.

    `errors` has one entry per item, in order; None for an item that had been created. Code and
    advice are those of the most frequent error.
    """

    def __init__(self, message: str, *, errors: Sequence[DSecError | None]) -> None:
        frequent = Counter(e.code for e in errors if e is not None).most_common(1)
        super().__init__(
            message,
            code=frequent[0][0] if frequent else None,
            retryable=any(e.retryable for e in errors if e is not None),
        )
        self.errors = tuple(errors)
        self.exit_code = ERROR_CLASSES.get(self.code, InternalError).exit_code

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_many, (self.message, self.errors))


def _rebuild_many(message: str, errors: Sequence[DSecError | None]) -> CreateManyError:
    return CreateManyError(message, errors=errors)


class CommandFailed(Exception):
    """A command ended with a non-zero exit code, by a signal or by its time limit, and `check=True`
    was given.
    """

    def __init__(self, result: CommandResult) -> None:
        super().__init__(result)
        self.result = result

    def __str__(self) -> str:
        r = self.result
        if r.timed_out:
            how = "was ended by its time limit"
        elif r.oom_killed:
            how = "ran out of memory"
        else:
            how = f"exited with {r.exit_code}"
        tail = r.stderr.strip()[-2000:]
        return f"command {how}" + (f": {tail}" if tail else "")

"""libdsec: sandboxes of a dsecd from Python.

    with Sandbox.create("debian-python:12") as sandbox:
        result = sandbox.commands.run("python3 -c 'print(6 * 7)'")

`Sandbox` is synchronous, `AsyncSandbox` has the same names for asyncio, `DSecClient` is the
connection itself. Failures of the platform are DSecError subclasses; what a command does is a
CommandResult.
"""

from ._async_commands import AsyncCommand, AsyncCommands
from ._async_files import AsyncFiles
from ._async_sandbox import AsyncSandbox
from ._client import DSecClient, DSecContainerRunArgs
from ._sync import Files, Sandbox
from ._sync_commands import Command, Commands
from .errors import (
    AlreadyExistsError,
    CapacityError,
    CommandFailed,
    ConflictError,
    CorruptError,
    CreateManyError,
    DeadlineExceededError,
    DSecError,
    ExecFailedError,
    InternalError,
    InvalidArgumentError,
    IoError,
    NoShellError,
    NotFoundError,
    PermissionDeniedError,
    ProtocolError,
    RequestCancelledError,
    SandboxFailedError,
    TooLargeError,
    UnauthenticatedError,
    UnavailableError,
    UnsupportedError,
    WrongPhaseError,
)
from .models import (
    CommandResult,
    CommandState,
    CreateResult,
    Event,
    EventPage,
    ImageInfo,
    NodeInfo,
    NodeList,
    OutputPiece,
    SandboxInfo,
    Usage,
)

__version__ = "0.1.0"

__all__ = [
    "AlreadyExistsError",
    "AsyncCommand",
    "AsyncCommands",
    "AsyncFiles",
    "AsyncSandbox",
    "CapacityError",
    "Command",
    "CommandFailed",
    "CommandResult",
    "CommandState",
    "Commands",
    "ConflictError",
    "CorruptError",
    "CreateManyError",
    "CreateResult",
    "DSecClient",
    "DSecContainerRunArgs",
    "DSecError",
    "DeadlineExceededError",
    "Event",
    "EventPage",
    "ExecFailedError",
    "Files",
    "ImageInfo",
    "InternalError",
    "InvalidArgumentError",
    "IoError",
    "NoShellError",
    "NodeInfo",
    "NodeList",
    "NotFoundError",
    "OutputPiece",
    "PermissionDeniedError",
    "ProtocolError",
    "RequestCancelledError",
    "Sandbox",
    "SandboxFailedError",
    "SandboxInfo",
    "TooLargeError",
    "UnauthenticatedError",
    "UnavailableError",
    "UnsupportedError",
    "Usage",
    "WrongPhaseError",
]

"""What the library hands out: plain frozen values, decoded from the wire in _codec.py. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from .errors import DSecError, IoError

S = TypeVar("S")

OnFailure = Literal["none", "snapshot"]
"""What becomes of the files of a sandbox that fails by itself."""

TERMINAL_PHASES = frozenset({"stopped", "failed"})


@dataclass(frozen=True)
class SandboxInfo:
    """A sandbox as the server described it at one moment."""

    id: str
    phase: str
    """requested, admitted, preparing, starting, running, paused, …, stopped or failed."""
    cause: str
    """Of death: none while alive, else exit, oom, ttl, killed, lost, backend …"""
    cause_detail: str
    backend: str
    image: str
    workspace: str
    toolkits: tuple[str, ...]
    created_unix_ms: int
    ended_unix_ms: int
    """0 while alive."""
    warnings: tuple[str, ...]
    """What was accepted but has no effect yet."""
    cpu: float
    memory_mb: int
    commands_running: int
    labels: dict[str, str] = field(default_factory=dict)
    detached: bool = False
    """Bound to no lease: it does not end with the client that created it."""

    @property
    def alive(self) -> bool:
        return self.phase not in TERMINAL_PHASES


@dataclass(frozen=True)
class CreateResult(Generic[S]):
    """What became of one item of `create_many`: either `sandbox` or `error` is there."""

    index: int
    """Of the item, counted from 0."""
    sandbox: S | None = None
    error: DSecError | None = None

    @property
    def ok(self) -> bool:
        return self.sandbox is not None

    def unwrap(self) -> S:
        """The sandbox; raises the error when there is none."""
        if self.sandbox is None:
            assert self.error is not None
            raise self.error
        return self.sandbox


@dataclass(frozen=True)
class ImageInfo:
    """A layer in the server's catalogue."""

    name: str
    tag: str
    kind: str
    digest: str
    size_bytes: int
    created_unix_ms: int


@dataclass(frozen=True)
class CommandState:
    """A command as one reply described it; `stdout` and `stderr` are what came inline."""

    sandbox_id: str
    id: str
    state: str
    """running, ended, lost (its sandbox ended first) or unknown (it could not be started)."""
    exit_code: int
    signal: int
    timed_out: bool
    oom_killed: bool
    stdout: bytes
    stderr: bytes
    stdout_total: int
    stderr_total: int
    stdout_truncated: bool
    stderr_truncated: bool
    started_unix_ms: int
    duration_us: int
    argv: tuple[str, ...]

    @property
    def ended(self) -> bool:
        return self.state == "ended"


@dataclass(frozen=True)
class CommandResult:
    """How a command ended. A non-zero exit code is an answer, not an error."""

    command_id: str
    exit_code: int
    """0..255; 128 + signal when it was killed by one."""
    signal: int
    """The signal that killed it, else 0."""
    timed_out: bool
    oom_killed: bool
    stdout_bytes: bytes
    stderr_bytes: bytes
    stdout_total: int
    """Bytes the command wrote; more than len(stdout_bytes) when some were dropped."""
    stderr_total: int
    stdout_truncated: bool
    stderr_truncated: bool
    duration: float
    """Seconds."""
    stdout_dropped: tuple[tuple[int, int], ...] = ()
    """(offset, length) of what was dropped from the output's middle."""
    stderr_dropped: tuple[tuple[int, int], ...] = ()
    error: IoError | None = None
    """Output was lost that is within the limit: the disk of the daemon's host did not take it."""

    @property
    def stdout(self) -> str:
        """Standard output as UTF-8 text; bytes that are not become U+FFFD."""
        return self.stdout_bytes.decode("utf-8", errors="replace")

    @property
    def stderr(self) -> str:
        """Standard error as UTF-8 text; bytes that are not become U+FFFD."""
        return self.stderr_bytes.decode("utf-8", errors="replace")

    @property
    def ok(self) -> bool:
        """Whether it exited with 0 by itself and no output was lost (`error`)."""
        return self.exit_code == 0 and not self.timed_out and self.error is None


@dataclass(frozen=True)
class Event:
    """Something that happened, as docs/events.md has it."""

    edge: str
    """The node where it happened."""
    seq: int
    """Its number there."""
    unix_ms: int
    kind: str
    """sandbox.created, command.ended, …"""
    sandbox_id: str
    """Empty: of the node."""
    command_id: str
    trace_id: str
    detail: str
    cause: str
    exit_code: int


@dataclass(frozen=True)
class EventPage:
    events: tuple[Event, ...]
    cursor: str
    """Where the next page begins."""
    dropped: int
    """Events in between that the server's memory has lost."""
    unreachable: tuple[str, ...] = ()
    """Workers of a coordinator that did not answer."""


@dataclass(frozen=True)
class Usage:
    """What a sandbox uses now."""

    memory_bytes: int
    cpu_usec: int
    """CPU time since its creation."""
    tasks: int


@dataclass(frozen=True)
class NodeInfo:
    """The load of one node, everybody's sandboxes together."""

    edge: str
    sandboxes: int
    creates: int
    """That wait for admission."""
    slots_ready: int
    memory_total_bytes: int
    memory_available_bytes: int
    memory_admitted_bytes: int
    """Limits of living sandboxes."""
    unhealthy: tuple[str, ...]


@dataclass(frozen=True)
class NodeList:
    nodes: tuple[NodeInfo, ...]
    unreachable: tuple[str, ...] = ()
    """Workers of a coordinator that did not answer."""


@dataclass(frozen=True)
class OutputPiece:
    """Part of one output stream of a command."""

    data: bytes
    offset: int
    """Of `data` in the output; greater than asked for when bytes in between were dropped."""
    total: int
    ended: bool


@dataclass(frozen=True)
class FilePiece:
    """Part of a file."""

    data: bytes
    offset: int
    size: int
    end_of_file: bool

"""Messages of src/proto/client.capnp to bytes and back. Pure; any thread.

Requests are built field by field on pycapnp's builders: assigning a dict costs ten times as much.
Replies are turned into plain values at once, because a reader is only valid while its message is.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import capnp

from .errors import DSecError, InvalidArgumentError, ProtocolError, from_wire
from .models import (
    CommandState,
    Event,
    EventPage,
    FilePiece,
    ImageInfo,
    NodeInfo,
    NodeList,
    OutputPiece,
    SandboxInfo,
    Usage,
)

# src/proto/limits.hpp
PROTOCOL_VERSION = 1
MAX_MESSAGE_BYTES = 16 << 20
MAX_DATA_BYTES = 8 << 20
MAX_IN_FLIGHT = 256
FEATURE_STREAMS = "streams"
DEFAULT_INLINE_BYTES = 1 << 20
_TRAVERSAL_LIMIT_WORDS = MAX_MESSAGE_BYTES  # 8 x the largest message, in words of 8 bytes
_NESTING_LIMIT = 16


def _load_schema() -> Any:
    capnp.remove_import_hook()
    schema = Path(__file__).with_name("client.capnp")
    imports = Path(capnp.__file__).parent.parent
    # pycapnp ends the process when an import is missing, so look first.
    for needed in (schema, imports / "capnp" / "c++.capnp"):
        if not needed.is_file():
            raise ImportError(f"libdsec is installed incompletely: {needed} is missing")
    return capnp.load(str(schema), imports=[str(imports)])


schema = _load_schema()

Fill = Callable[[Any], None]
"""Writes a request's body: is given the builder of the `body` union."""


def encode_request(
    request_id: int, deadline_ms: int, idempotency_key: str, fill: Fill, trace_id: str = ""
) -> bytes:
    """One request as a message. InvalidArgumentError when a value does not fit the schema."""
    try:
        message = schema.Request.new_message()
        message.id = request_id
        message.deadlineMs = deadline_ms
        if idempotency_key:
            message.idempotencyKey = idempotency_key
        if trace_id:
            message.traceId = trace_id
        fill(message.body)
        data: bytes = message.to_bytes()
    except (
        capnp.KjException, ArithmeticError, AttributeError, TypeError, ValueError,
    ) as error:  # fmt: skip
        raise InvalidArgumentError(
            f"a value does not fit the request: {_first_line(error)}"
        ) from error
    if len(data) > MAX_MESSAGE_BYTES:
        raise InvalidArgumentError(
            f"the request takes {len(data)} bytes, the protocol allows {MAX_MESSAGE_BYTES}"
        )
    return data


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


# ---- request bodies


def void(member: str) -> Fill:
    """A request without fields: ping, listSandboxes, listImages, listNodes."""

    def fill(body: Any) -> None:
        setattr(body, member, None)

    return fill


def _plain(member: str, **fields: Any) -> Fill:
    """A member of a union that is these fields."""

    def fill(body: Any) -> None:
        message = body.init(member)
        for name, value in fields.items():
            setattr(message, name, value)

    return fill


def hello(client: str, lease_id: str = "", lease_ms: int = 0) -> Fill:
    return _plain(
        "hello",
        protocolVersion=PROTOCOL_VERSION,
        client=client,
        leaseId=lease_id,
        leaseMs=lease_ms,
        features=[FEATURE_STREAMS],
    )


def sandbox_ref(member: str, sandbox_id: str) -> Fill:
    """getSandbox, stopSandbox, listCommands, getUsage."""
    return _plain(member, sandboxId=sandbox_id)


def list_events(*, after: str, trace_id: str, sandbox_id: str, limit: int, wait_ms: int) -> Fill:
    return _plain(
        "listEvents",
        after=after,
        traceId=trace_id,
        sandboxId=sandbox_id,
        limit=limit,
        waitMs=wait_ms,
    )


def set_detached(sandbox_id: str, detached: bool) -> Fill:
    return _plain("setDetached", sandboxId=sandbox_id, detached=detached)


def command_ref(
    member: str, sandbox_id: str, command_id: str, *, wait_ms: int = 0, inline_limit: int = 0
) -> Fill:
    """getCommand, killCommand."""
    return _plain(
        member,
        sandboxId=sandbox_id,
        commandId=command_id,
        waitMs=wait_ms,
        inlineLimit=inline_limit,
    )


def fill_pairs(target: Any, field: str, pairs: Mapping[str, str]) -> None:
    """A List(EnvVar) field."""
    if pairs:
        items = target.init(field, len(pairs))
        for item, (name, value) in zip(items, pairs.items(), strict=True):
            item.name = name
            item.value = value


def create_sandbox(
    *,
    image: str,
    workspace: str,
    toolkits: Sequence[str],
    cpu_millis: int,
    memory_mb: int,
    pids_limit: int,
    idle_ttl_seconds: int,
    absolute_ttl_seconds: int,
    env: Mapping[str, str],
    init_user: str,
    workdir: str,
    network_rules: Mapping[str, bool],
    hostname: str,
    labels: Mapping[str, str],
    backend: str,
    detached: bool,
    on_failure: str,
) -> Fill:
    def fill(body: Any) -> None:
        message = body.init("createSandbox")
        message.backend = backend
        message.image = image
        message.workspace = workspace
        message.toolkits = list(toolkits)
        message.cpuMillis = cpu_millis
        message.memoryMb = memory_mb
        message.pidsLimit = pids_limit
        message.idleTtlSeconds = idle_ttl_seconds
        message.absoluteTtlSeconds = absolute_ttl_seconds
        fill_pairs(message, "env", env)
        message.initUser = init_user
        message.workdir = workdir
        if network_rules:
            rules = message.init("networkRules", len(network_rules))
            for rule, (service, allow) in zip(rules, network_rules.items(), strict=True):
                rule.service = service
                rule.allow = allow
        message.hostname = hostname
        message.detached = detached
        message.onFailure = on_failure
        fill_pairs(message, "labels", labels)

    return fill


def exec_command(
    *,
    sandbox_id: str,
    command_id: str,
    argv: Sequence[str],
    shell: str,
    env: Mapping[str, str],
    cwd: str,
    user: str,
    stdin: bytes,
    timeout_ms: int,
    output_limit: int,
    use_entrypoint: bool,
    wait: bool,
) -> Fill:
    def fill(body: Any) -> None:
        message = body.init("exec")
        message.sandboxId = sandbox_id
        message.commandId = command_id
        if argv:
            message.argv = list(argv)
        if shell:
            message.shell = shell
        if env:
            fill_pairs(message, "env", env)
        if cwd:
            message.cwd = cwd
        if user:
            message.user = user
        if stdin:
            message.stdin = stdin
        message.timeoutMs = timeout_ms
        message.outputLimit = output_limit
        message.useEntrypoint = use_entrypoint
        message.wait = wait

    return fill


def read_output(
    sandbox_id: str, command_id: str, *, stderr: bool, offset: int, length: int
) -> Fill:
    return _plain(
        "readOutput",
        sandboxId=sandbox_id,
        commandId=command_id,
        stderr=stderr,
        offset=offset,
        length=length,
    )


def read_file(sandbox_id: str, path: str, *, offset: int, length: int, user: str) -> Fill:
    return _plain(
        "readFile",
        sandboxId=sandbox_id,
        path=path,
        offset=offset,
        length=length,
        user=user,
    )


def write_file(
    sandbox_id: str,
    path: str,
    data: bytes,
    *,
    offset: int,
    mode: int,
    user: str,
    operation_id: str,
) -> Fill:
    return _plain(
        "writeFile",
        sandboxId=sandbox_id,
        path=path,
        data=data,
        offset=offset,
        mode=mode,
        user=user,
        operationId=operation_id,
    )


# ---- streams

Source = Callable[[Any], None]
"""Writes what a stream is of: is given the builder of the `source` union."""


def output_source(sandbox_id: str, command_id: str, *, stderr: bool, offset: int) -> Source:
    return _plain(
        "output",
        sandboxId=sandbox_id,
        commandId=command_id,
        stderr=stderr,
        offset=offset,
    )


def file_source(sandbox_id: str, path: str, *, offset: int, user: str) -> Source:
    return _plain("file", sandboxId=sandbox_id, path=path, offset=offset, user=user)


def open_stream(stream_id: int, source: Source, credit: int) -> Fill:
    def fill(body: Any) -> None:
        message = body.init("openStream")
        message.streamId = stream_id
        message.credit = credit
        source(message.source)

    return fill


def stream_credit(stream_id: int, size: int) -> Fill:
    return _plain("streamCredit", streamId=stream_id, bytes=size)


def close_stream(stream_id: int) -> Fill:
    return _plain("closeStream", streamId=stream_id)


@dataclass(frozen=True)
class StreamPiece:
    """What came over a stream at once."""

    stream_id: int
    data: bytes
    offset: int
    """Of `data`; greater than where the one before ended when bytes in between were dropped."""
    last: bool
    total: int
    """With the last one: bytes of the source."""
    error: DSecError | None


# ---- replies


@dataclass(frozen=True)
class HelloReply:
    """What a server is."""

    version: int
    server: str
    edge: str
    features: frozenset[str]
    max_streams: int


class PartialList(list[Any]):
    """A list of which the server sent only what fits in a message."""

    def warn(self, what: str) -> None:
        warnings.warn(f"only {len(self)} {what} are listed: more do not fit", stacklevel=2)


def decode_reply(data: bytes) -> tuple[int, str, Any]:
    """(request id, union member, value). An `error` member's value is a DSecError, not raised.

    A body that cannot be read is its request's error; ProtocolError is raised only when not even
    the id can.
    """
    try:
        with schema.Reply.from_bytes(
            data, traversal_limit_in_words=_TRAVERSAL_LIMIT_WORDS, nesting_limit=_NESTING_LIMIT
        ) as message:
            request_id: int = message.id
            try:
                body = message.body
                member = str(body.which())
                value = _DECODERS[member](getattr(body, member))
                if isinstance(value, EventPage | NodeList):
                    value = replace(value, unreachable=tuple(message.unreachable))
                return request_id, member, PartialList(value) if message.truncated else value
            except Exception as error:
                return request_id, "error", ProtocolError(f"unreadable reply: {_first_line(error)}")
    except (
        Exception
    ) as error:  # pycapnp raises KjException, ValueError, UnicodeDecodeError and others
        raise ProtocolError(f"malformed message: {_first_line(error)}") from error


def _shown(read: Callable[[], str]) -> str:
    """A text that is only shown: one that is no UTF-8 costs itself, not the reply it stands in."""
    try:
        return read()
    except UnicodeDecodeError as error:
        return bytes(error.object).decode("utf-8", errors="replace")


def _shown_list(texts: Any) -> tuple[str, ...]:
    try:
        return tuple(texts)
    except UnicodeDecodeError:
        return tuple(_shown(lambda i=i: texts[i]) for i in range(len(texts)))


def _error(m: Any) -> DSecError:
    message, object_ = _shown(lambda: m.message), _shown(lambda: m.object)
    return from_wire(m.code, message, object_, m.retryable)


def _hello(m: Any) -> HelloReply:
    return HelloReply(m.protocolVersion, m.server, m.edge, frozenset(m.features), m.maxStreams)


def _stream_data(m: Any) -> StreamPiece:
    failed = str(m.end) == "failed"
    return StreamPiece(
        stream_id=m.streamId,
        data=m.data,
        offset=m.offset,
        last=str(m.end) != "none",
        total=m.total,
        error=_error(m.error) if failed else None,
    )


def _sandbox(m: Any) -> SandboxInfo:
    return SandboxInfo(
        id=m.sandboxId,
        phase=m.phase,
        cause=m.cause,
        cause_detail=_shown(lambda: m.causeDetail),
        backend=m.backend,
        image=_shown(lambda: m.image),
        workspace=_shown(lambda: m.workspace),
        toolkits=_shown_list(m.toolkits),
        created_unix_ms=m.createdUnixMs,
        ended_unix_ms=m.endedUnixMs,
        warnings=_shown_list(m.warnings),
        cpu=m.cpuMillis / 1000,
        memory_mb=m.memoryMb,
        commands_running=m.commandsRunning,
        labels={_shown(lambda p=pair: p.name): _shown(lambda p=pair: p.value) for pair in m.labels},
        detached=m.detached,
    )


def _command(m: Any) -> CommandState:
    return CommandState(
        sandbox_id=m.sandboxId,
        id=m.commandId,
        state=str(m.state),
        exit_code=m.exitCode,
        signal=m.signal,
        timed_out=m.timedOut,
        oom_killed=m.oomKilled,
        stdout=m.stdout,
        stderr=m.stderr,
        stdout_total=m.stdoutTotal,
        stderr_total=m.stderrTotal,
        stdout_truncated=m.stdoutTruncated,
        stderr_truncated=m.stderrTruncated,
        started_unix_ms=m.startedUnixMs,
        duration_us=m.durationUs,
        argv=_shown_list(m.argv),
    )


def _image(m: Any) -> ImageInfo:
    return ImageInfo(
        name=m.name,
        tag=m.tag,
        kind=m.kind,
        digest=m.digest,
        size_bytes=m.sizeBytes,
        created_unix_ms=m.createdUnixMs,
    )


def _event(m: Any) -> Event:
    return Event(
        edge=m.edge,
        seq=m.seq,
        unix_ms=m.unixMs,
        kind=m.kind,
        sandbox_id=m.sandboxId,
        command_id=m.commandId,
        trace_id=_shown(lambda: m.traceId),
        detail=_shown(lambda: m.detail),
        cause=m.cause,
        exit_code=m.exitCode,
    )


def _events(m: Any) -> EventPage:
    return EventPage(tuple(_event(e) for e in m.events), m.cursor, m.dropped)


def _node(m: Any) -> NodeInfo:
    return NodeInfo(
        edge=m.edge,
        sandboxes=m.sandboxes,
        creates=m.creates,
        slots_ready=m.slotsReady,
        memory_total_bytes=m.memoryTotalBytes,
        memory_available_bytes=m.memoryAvailableBytes,
        memory_admitted_bytes=m.memoryAdmittedBytes,
        unhealthy=_shown_list(m.unhealthy),
    )


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "error": _error,
    "hello": _hello,
    "pong": lambda m: None,
    "sandbox": _sandbox,
    "sandboxes": lambda m: [_sandbox(item) for item in m],
    "command": _command,
    "output": lambda m: OutputPiece(m.data, m.offset, m.total, m.ended),
    "fileData": lambda m: FilePiece(m.data, m.offset, m.size, m.endOfFile),
    "fileWritten": lambda m: m.size,
    "images": lambda m: [_image(item) for item in m],
    "commands": lambda m: [_command(item) for item in m],
    "stream": lambda m: m.streamId,
    "streamData": _stream_data,
    "events": _events,
    "usage": lambda m: Usage(m.memoryBytes, m.cpuUsec, m.tasks),
    "nodes": lambda m: NodeList(tuple(_node(n) for n in m)),
}

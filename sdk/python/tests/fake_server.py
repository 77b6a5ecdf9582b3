"""A daemon in miniature for the tests of the library: the real schema over a real WebSocket, with
made-up sandboxes.

Runs on a thread of its own. What a command does is written in its text: `echo TEXT`, `exit N`, `out
BYTES`, `err TEXT`, `cat`, `hang` (until killed), `late` (the server does not answer). Tests may
make it lose connections, refuse keys or send rubbish.
"""

from __future__ import annotations

import asyncio
import contextlib
import http
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from libdsec._codec import schema

KEY = "dsec_testkey"


@dataclass
class FakeCommand:
    id: str
    sandbox: str
    argv: list[str]
    stdin: bytes = b""
    stdout: bytes = b""
    stderr: bytes = b""
    cap: int = 64 << 20
    room: int = 1 << 40
    """Bytes of a stream that the disk takes."""
    exit_code: int = 0
    signal: int = 0
    timed_out: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def kept(self, data: bytes, offset: int) -> tuple[int, bytes]:
        """(offset, bytes) of what is there from `offset` on; the middle beyond the cap is gone."""
        half = self.cap // 2
        if min(len(data), self.cap) > self.room:
            return offset, data[offset : self.room]
        if len(data) <= self.cap or offset >= len(data) - half:
            return offset, data[offset:]
        if offset < half:
            return offset, data[offset:half]
        return len(data) - half, data[len(data) - half :]


@dataclass
class FakeStream:
    source: Any
    offset: int
    credit: int


class FakeServer:
    """`with FakeServer() as server:` listens on server.url."""

    def __init__(self) -> None:
        self.port = 0
        self.version = 1
        self.sandboxes: dict[str, dict[str, Any]] = {}
        self.keys: dict[str, tuple[bytes, str]] = {}
        self.withdrawn: set[str] = set()
        """Keys of creations that were taken back."""
        self.refused_late = 0
        """Creations that were looked at after that."""
        self.silent = False
        """Takes requests and answers none, as a stopped process does."""
        self.commands: dict[tuple[str, str], FakeCommand] = {}
        self.files: dict[str, bytes] = {}
        self.operations: dict[str, int] = {}
        self.writes = 0
        self.leases: list[tuple[str, int]] = []
        """Of each hello, in order."""
        self.starts: list[str] = []
        self.creates = 0
        self.requests: list[str] = []
        self.largest_message = 0
        self.connections = 0
        self.most_in_flight = 0
        self.create_delay = 0.0
        self.output_piece = 8 << 20
        self.streams: dict[tuple[ServerConnection, int], FakeStream] = {}
        self.max_streams = 64
        self.most_credit = 0
        """That a stream has had at a time."""
        self.room = 1 << 40
        """Of later commands, see there."""
        self.lose_before: dict[str, int] = {}
        """Request kind -> how often the connection is cut before the request is looked at."""
        self.lose_after: dict[str, int] = {}
        """Request kind -> how often the connection is cut after it was done, instead of the reply.
        """
        self.rubbish: dict[str, bytes] = {}
        """Request kind -> what is sent instead of the reply."""
        self.status: http.HTTPStatus | None = None
        self.traces: list[tuple[str, str]] = []
        """(kind, traceId) of each request that has one."""
        self.events: list[dict[str, Any]] = []
        self.events_dropped = 0
        self.page_of_events = 2
        self.unreachable: list[str] = []
        self.asked_events: list[tuple[str, int]] = []
        """(after, waitMs) of each listEvents."""
        self.cpu_usec = 0
        self.unhealthy: list[str] = []
        self.next_error: dict[str, tuple[str, str, str, bool]] = {}
        self.keep_errors = False
        """The next error is that of all later requests of its kind, too."""
        self.refused_images: set[str] = set()
        self._open: set[ServerConnection] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    # ---- life

    def __enter__(self) -> FakeServer:
        self._thread.start()
        self.listen()
        return self

    def __exit__(self, *exc: object) -> None:
        self.shut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def listen(self) -> None:
        self._server = self.on_loop(self._listen())

    def shut(self) -> None:
        async def shut() -> None:
            self._server.close()
            await self._server.wait_closed()

        self.on_loop(shut())

    def cut(self) -> None:
        """Loses every connection at once, without a closing handshake."""

        async def cut() -> None:
            for connection in list(self._open):
                connection.transport.abort()

        self.on_loop(cut())

    def restart(self) -> None:
        """Killed with all its connections and started again at the same address, as dsecd is: what
        it had written down it still knows.
        """
        self.shut()
        self.cut()
        self.listen()

    def on_loop(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

    async def _listen(self) -> Any:
        def check(connection: ServerConnection, request: Any) -> Any:
            if self.status is not None:
                return connection.respond(self.status, "no\n")
            if request.path != "/v1/ws":
                return connection.respond(http.HTTPStatus.NOT_FOUND, "no\n")
            if request.headers.get("Authorization") != f"Bearer {KEY}":
                return connection.respond(http.HTTPStatus.UNAUTHORIZED, "no\n")
            return None

        server = await serve(
            self._serve, "127.0.0.1", self.port, process_request=check, max_size=16 << 20,
            compression=None,
        )  # fmt: skip
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _serve(self, connection: ServerConnection) -> None:
        self.connections += 1
        self._open.add(connection)
        tasks: set[asyncio.Task[None]] = set()
        try:
            async for message in connection:
                self.largest_message = max(self.largest_message, len(message))
                task = asyncio.create_task(self._handle(connection, message))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                self.most_in_flight = max(self.most_in_flight, len(tasks))
        except ConnectionClosed:
            pass
        finally:
            self.streams = {k: s for k, s in self.streams.items() if k[0] is not connection}
            self._open.discard(connection)
            for task in tasks:
                task.cancel()

    async def _handle(self, connection: ServerConnection, message: bytes) -> None:
        with schema.Request.from_bytes(message, traversal_limit_in_words=1 << 24) as reader:
            request = reader.as_builder()
        kind = str(request.body.which())
        self.requests.append(kind)
        if request.traceId:
            self.traces.append((kind, str(request.traceId)))
        if self.silent:
            return
        if self.lose_before.get(kind, 0) > 0:
            self.lose_before[kind] -= 1
            connection.transport.abort()
            return
        reply = schema.Reply.new_message()
        reply.id = request.id
        if kind in self.next_error:
            error = self.next_error[kind] if self.keep_errors else self.next_error.pop(kind)
            fill_error(reply, *error)
        elif (handler := getattr(self, f"_do_{kind}", None)) is None:
            fill_error(reply, "unsupported", f"no {kind} here", "", False)
        else:
            body = getattr(request.body, kind)
            self._connection = connection  # for handlers, until they wait
            await handler(reply, body, request)
        if kind in self.rubbish:
            await connection.send(self.rubbish.pop(kind))
            return
        if self.lose_after.get(kind, 0) > 0:
            self.lose_after[kind] -= 1
            connection.transport.abort()
            return
        with contextlib.suppress(ConnectionClosed):
            await connection.send(reply.to_bytes())
            if kind == "openStream" and str(reply.body.which()) == "stream":
                await self._push(connection, request.body.openStream.streamId)

    # ---- streams

    async def _push(self, connection: ServerConnection, stream_id: int) -> None:
        """Sends what the stream has until it ends or is closed."""
        while (stream := self.streams.get((connection, stream_id))) is not None:
            reply = schema.Reply.new_message()
            data = reply.body.init("streamData")
            data.streamId = stream_id
            ended = self._fill_piece(data, stream)
            if len(data.data) == 0 and not ended:
                await asyncio.sleep(0.005)
                continue
            stream.offset = data.offset + len(data.data)
            stream.credit -= len(data.data)
            if ended:
                del self.streams[connection, stream_id]
            await connection.send(reply.to_bytes())

    def _fill_piece(self, data: Any, stream: FakeStream) -> bool:
        """Whether it is the last one."""
        most = min(stream.credit, self.output_piece, 128 << 10)
        if str(stream.source.which()) == "file":
            all_of_it = self.files.get(stream.source.file.path)
            if all_of_it is None:
                fill_failed(data, "not_found", f"no file {stream.source.file.path}")
                return True
            kept, ended = all_of_it[stream.offset :], True
            data.offset = stream.offset
        else:
            output = stream.source.output
            command = self.commands[output.sandboxId, output.commandId]
            all_of_it = command.stderr if output.stderr else command.stdout
            data.offset, kept = command.kept(all_of_it, stream.offset)
            ended = command.ended.is_set()
        if most == 0:
            return False
        data.data = kept[:most]
        end = data.offset + len(data.data)
        if ended and (end >= len(all_of_it) or len(data.data) == 0):
            data.end, data.total = "complete", len(all_of_it)
            return True
        return False

    async def _do_openStream(self, reply: Any, body: Any, request: Any) -> None:
        source = getattr(body.source, str(body.source.which()))
        key = (self._connection, body.streamId)
        if sum(c is self._connection for c, _ in self.streams) >= self.max_streams:
            fill_error(reply, "capacity", "too many streams", "", True)
            return
        self.streams[key] = FakeStream(body.source, source.offset, body.credit)
        reply.body.init("stream").streamId = body.streamId

    async def _do_streamCredit(self, reply: Any, body: Any, request: Any) -> None:
        stream = self.streams.get((self._connection, body.streamId))
        if stream is None:
            fill_error(reply, "not_found", f"no stream {body.streamId}", "", False)
            return
        stream.credit += body.bytes
        self.most_credit = max(self.most_credit, stream.credit)
        reply.body.init("stream").streamId = body.streamId

    async def _do_closeStream(self, reply: Any, body: Any, request: Any) -> None:
        if self.streams.pop((self._connection, body.streamId), None) is None:
            fill_error(reply, "not_found", f"no stream {body.streamId}", "", False)
            return
        reply.body.init("stream").streamId = body.streamId

    # ---- requests

    async def _do_hello(self, reply: Any, body: Any, request: Any) -> None:
        self.leases.append((str(body.leaseId), body.leaseMs))
        hello = reply.body.init("hello")
        hello.protocolVersion = self.version
        hello.server = "fake"
        hello.edge = "e0"
        hello.maxMessageBytes = 16 << 20
        if self.max_streams:
            hello.features = ["streams"]
            hello.maxStreams = self.max_streams

    async def _do_ping(self, reply: Any, body: Any, request: Any) -> None:
        reply.body.pong = None

    async def _do_createSandbox(self, reply: Any, body: Any, request: Any) -> None:
        await asyncio.sleep(self.create_delay)
        if str(request.idempotencyKey) in self.withdrawn:
            self.refused_late += 1
            fill_error(reply, "cancelled", "it was withdrawn", "", True)
            return
        key, content = str(request.idempotencyKey), body.as_reader().as_builder().to_bytes()
        if key in self.keys:
            known, sandbox = self.keys[key]
            if known != content:
                fill_error(reply, "conflict", "the key was used for another request", key, False)
            elif self.sandboxes[sandbox]["phase"] != "running":
                fill_error(reply, "sandbox_failed", f"{sandbox} was stopped", sandbox, False)
            else:
                fill_sandbox(reply.body.init("sandbox"), self.sandboxes[sandbox])
            return
        if body.image in self.refused_images:
            fill_error(reply, "not_found", f"no image {body.image}", body.image, False)
            return
        self.creates += 1
        sandbox = f"e0-{self.creates:016d}"
        self.keys[key] = (content, sandbox)
        self.sandboxes[sandbox] = {
            "sandboxId": sandbox,
            "phase": "running",
            "cause": "none",
            "backend": body.backend or "container",
            "image": body.image,
            "workspace": body.workspace,
            "toolkits": list(body.toolkits),
            "createdUnixMs": int(time.time() * 1000),
            "warnings": [f"{r.service} has no effect" for r in body.networkRules if r.allow],
            "cpuMillis": body.cpuMillis,
            "memoryMb": body.memoryMb,
            "labels": {pair.name: pair.value for pair in body.labels},
            "env": {pair.name: pair.value for pair in body.env},
            "idle": body.idleTtlSeconds,
            "absolute": body.absoluteTtlSeconds,
            "user": body.initUser,
            "detached": body.detached,
        }
        fill_sandbox(reply.body.init("sandbox"), self.sandboxes[sandbox])

    async def _do_getSandbox(self, reply: Any, body: Any, request: Any) -> None:
        if body.sandboxId not in self.sandboxes:
            fill_error(reply, "not_found", f"no sandbox {body.sandboxId}", body.sandboxId, False)
            return
        fill_sandbox(reply.body.init("sandbox"), self.sandboxes[body.sandboxId])

    async def _do_listSandboxes(self, reply: Any, body: Any, request: Any) -> None:
        items = reply.body.init("sandboxes", len(self.sandboxes))
        for item, sandbox in zip(items, self.sandboxes.values(), strict=True):
            fill_sandbox(item, sandbox)

    async def _do_stopSandbox(self, reply: Any, body: Any, request: Any) -> None:
        if key := str(request.idempotencyKey):
            _, sandbox = self.keys.pop(key, (b"", ""))
            if not body.sandboxId:
                self.withdrawn.add(key)
                body.sandboxId = sandbox
        if body.sandboxId in self.sandboxes:
            self.sandboxes[body.sandboxId].update(phase="stopped", cause="killed", endedUnixMs=1)
        await self._do_getSandbox(reply, body, request)

    async def _do_setDetached(self, reply: Any, body: Any, request: Any) -> None:
        if body.sandboxId in self.sandboxes:
            self.sandboxes[body.sandboxId]["detached"] = body.detached
        await self._do_getSandbox(reply, body, request)

    async def _do_listEvents(self, reply: Any, body: Any, request: Any) -> None:
        self.asked_events.append((str(body.after), int(body.waitMs)))
        since = int(str(body.after).rpartition(":")[2] or 0)
        if since >= len(self.events) and body.waitMs:
            await asyncio.sleep(body.waitMs / 1000)
        found = [
            (seq, event)
            for seq, event in enumerate(self.events, 1)
            if seq > since
            and event.get("traceId", "") == (body.traceId or event.get("traceId", ""))
            and event.get("sandboxId", "") == (body.sandboxId or event.get("sandboxId", ""))
        ][: self.page_of_events]
        page = reply.body.init("events")
        page.dropped = self.events_dropped if since == 0 else 0
        page.cursor = f"e0:first:{found[-1][0] if found else len(self.events)}"
        for item, (seq, event) in zip(page.init("events", len(found)), found, strict=True):
            item.edge, item.seq = "e0", seq
            for name, value in event.items():
                setattr(item, name, value)
        reply.unreachable = self.unreachable

    async def _do_getUsage(self, reply: Any, body: Any, request: Any) -> None:
        if self.sandboxes[body.sandboxId]["phase"] != "running":
            fill_error(reply, "sandbox_failed", "it has ended", body.sandboxId, False)
            return
        self.cpu_usec += 250_000
        usage = reply.body.init("usage")
        usage.memoryBytes, usage.cpuUsec, usage.tasks = 3 << 20, self.cpu_usec, 4

    async def _do_listNodes(self, reply: Any, body: Any, request: Any) -> None:
        node = reply.body.init("nodes", 1)[0]
        node.edge, node.sandboxes, node.creates, node.slotsReady = "e0", len(self.sandboxes), 2, 8
        node.memoryTotalBytes, node.memoryAvailableBytes = 8 << 30, 6 << 30
        node.memoryAdmittedBytes = 1 << 30
        node.unhealthy = self.unhealthy
        reply.unreachable = self.unreachable

    async def _do_listImages(self, reply: Any, body: Any, request: Any) -> None:
        image = reply.body.init("images", 1)[0]
        image.name, image.tag, image.kind, image.digest = "tiny", "1", "base", "sha256:00"
        image.sizeBytes = 4096

    async def _do_exec(self, reply: Any, body: Any, request: Any) -> None:
        if body.sandboxId not in self.sandboxes:
            fill_error(reply, "not_found", f"no sandbox {body.sandboxId}", body.sandboxId, False)
            return
        key = (body.sandboxId, body.commandId)
        if key not in self.commands:
            words = list(body.argv) or body.shell.split(" ")
            if words[0] == "nosuch":
                fill_error(reply, "exec_failed", "nosuch: not found", "nosuch", False)
                return
            self.starts.append(body.commandId)
            command = FakeCommand(body.commandId, body.sandboxId, words, bytes(body.stdin))
            command.cap = body.outputLimit or command.cap
            command.room = self.room
            self.commands[key] = command
            self._run(command, words, body)
        command = self.commands[key]
        if command.argv[0] == "late":
            await asyncio.sleep(30)
        if body.wait:
            try:
                await asyncio.wait_for(command.ended.wait(), request.deadlineMs / 1000)
            except asyncio.TimeoutError:
                fill_error(reply, "deadline_exceeded", "still running", command.id, True)
                return
        fill_command(reply.body.init("command"), command)

    def _run(self, command: FakeCommand, words: list[str], body: Any) -> None:
        verb, rest = words[0], " ".join(words[1:])
        if verb == "echo":
            command.stdout = rest.encode() + b"\n"
        elif verb == "err":
            command.stderr = rest.encode() + b"\n"
            command.exit_code = 1
        elif verb == "out":
            command.stdout = pattern(int(rest))
        elif verb == "random":
            command.stdout = command.stderr = bytes(range(256)) * 16
        elif verb == "cat":
            command.stdout = command.stdin
        elif verb == "env":
            command.stdout = "\n".join(f"{p.name}={p.value}" for p in body.env).encode()
        elif verb == "where":
            command.stdout = f"{body.cwd} {body.user} {body.timeoutMs}".encode()
        elif verb == "exit":
            command.exit_code = int(rest)
        if verb == "hang":
            if body.timeoutMs:
                self._loop.call_later(body.timeoutMs / 1000, self._end, command, True)
        elif verb != "late":
            command.ended.set()

    def _end(self, command: FakeCommand, timed_out: bool) -> None:
        if not command.ended.is_set():
            command.timed_out = timed_out
            command.exit_code, command.signal = 137, 9
            command.ended.set()

    async def _do_getCommand(self, reply: Any, body: Any, request: Any) -> None:
        command = self.commands.get((body.sandboxId, body.commandId))
        if command is None:
            fill_error(reply, "not_found", f"no command {body.commandId}", body.commandId, False)
            return
        if body.waitMs:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(command.ended.wait(), body.waitMs / 1000)
        fill_command(reply.body.init("command"), command)

    async def _do_killCommand(self, reply: Any, body: Any, request: Any) -> None:
        command = self.commands.get((body.sandboxId, body.commandId))
        if command is not None:
            self._end(command, False)
        await self._do_getCommand(reply, body, request)

    async def _do_listCommands(self, reply: Any, body: Any, request: Any) -> None:
        commands = [c for c in self.commands.values() if c.sandbox == body.sandboxId]
        for item, command in zip(reply.body.init("commands", len(commands)), commands, strict=True):
            fill_command(item, command)

    async def _do_readOutput(self, reply: Any, body: Any, request: Any) -> None:
        command = self.commands[body.sandboxId, body.commandId]
        data = command.stderr if body.stderr else command.stdout
        offset, kept = command.kept(data, body.offset)
        output = reply.body.init("output")
        output.data = kept[: min(body.length, self.output_piece)]
        output.offset, output.total, output.ended = offset, len(data), command.ended.is_set()

    async def _do_readFile(self, reply: Any, body: Any, request: Any) -> None:
        if body.path not in self.files:
            fill_error(reply, "not_found", f"no file {body.path}", body.path, False)
            return
        data = self.files[body.path]
        piece = reply.body.init("fileData")
        piece.data = data[body.offset : body.offset + body.length]
        piece.offset, piece.size = body.offset, len(data)
        piece.endOfFile = body.offset + len(piece.data) >= len(data)

    async def _do_writeFile(self, reply: Any, body: Any, request: Any) -> None:
        if body.operationId not in self.operations:
            self.writes += 1
            old = b"" if body.offset == 0 else self.files[body.path]
            end = body.offset + len(body.data)
            self.files[body.path] = old[: body.offset] + bytes(body.data) + old[end:]
            self.operations[str(body.operationId)] = len(self.files[body.path])
        reply.body.init("fileWritten").size = self.operations[str(body.operationId)]


async def until(condition: Callable[[], object], seconds: float = 20) -> None:
    """Waits for something that another thread brings about."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about in time"
        await asyncio.sleep(0.005)


def eventually(condition: Callable[[], object], seconds: float = 20) -> bool:
    """Whether it comes about in time, for those who do not run on a loop."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def pattern(size: int) -> bytes:
    """Bytes of which every piece betrays its place."""
    return b"".join(b"%09d\n" % i for i in range(size // 10 + 1))[:size]


def fill_error(reply: Any, code: str, message: str, object_: str, retryable: bool) -> None:
    error = reply.body.init("error")
    error.code, error.message, error.object, error.retryable = code, message, object_, retryable


def fill_failed(data: Any, code: str, message: str) -> None:
    data.end = "failed"
    data.error.code, data.error.message = code, message


def fill_sandbox(target: Any, sandbox: dict[str, Any]) -> None:
    for name, value in sandbox.items():
        if name == "labels":
            items = target.init("labels", len(value))
            for item, (key, text) in zip(items, value.items(), strict=True):
                item.name, item.value = key, text
        elif name not in ("env", "idle", "absolute", "user"):
            setattr(target, name, value)


def fill_command(target: Any, command: FakeCommand) -> None:
    inline = 1 << 20
    target.sandboxId, target.commandId = command.sandbox, command.id
    target.state = "ended" if command.ended.is_set() else "running"
    target.exitCode, target.signal, target.timedOut = (
        command.exit_code,
        command.signal,
        command.timed_out,
    )
    target.stdout = command.kept(command.stdout, 0)[1][:inline]
    target.stderr = command.kept(command.stderr, 0)[1][:inline]
    target.stdoutTotal, target.stderrTotal = len(command.stdout), len(command.stderr)
    target.stdoutTruncated = len(command.stdout) > command.cap
    target.stderrTruncated = len(command.stderr) > command.cap
    target.durationUs = 1500
    target.argv = command.argv

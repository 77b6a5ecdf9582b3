"""Commands of one sandbox, asynchronously. Lives on its client's event loop.

No wait is endless: long ones are asked for in slices, each with a deadline, so that a command that
runs for hours needs no request that does.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from . import _codec
from ._checks import octets, seconds
from ._client import REQUEST_SECONDS
from ._streams import follow, merge
from .errors import (
    CommandFailed,
    DeadlineExceededError,
    DSecError,
    InvalidArgumentError,
    IoError,
    NotFoundError,
    SandboxFailedError,
    TooLargeError,
    UnavailableError,
)
from .models import CommandResult, CommandState, OutputPiece

if TYPE_CHECKING:
    from ._client import DSecClient

_SLICE_SECONDS = 50.0
_LAST_SECONDS = 1.0
_MARGIN_SECONDS = 10.0
"""How long the answer may take beyond what it waits for."""
_LONGEST_PAUSE = 0.25

STDOUT, STDERR = "stdout", "stderr"


def lost_output(command_id: str, lost: Mapping[str, tuple[int, int]]) -> IoError:
    """`lost` has, per stream, how many bytes are missing of how many."""
    what = " and ".join(
        f"{missing} of {total} bytes of its {stream}" for stream, (missing, total) in lost.items()
    )
    return IoError(
        f"command {command_id} has ended, but {what} were lost: the disk with the daemon's state "
        "directory did not take them; make room there and run it again",
        object=command_id,
    )


class AsyncCommand:
    """A started command: `await command.wait()`, `.kill()`, `async for stream, data in
    command.stream()`.
    """

    def __init__(self, client: DSecClient, state: CommandState) -> None:
        self._client = client
        self._state = state
        self._result: CommandResult | None = None

    @property
    def id(self) -> str:
        return self._state.id

    @property
    def sandbox_id(self) -> str:
        return self._state.sandbox_id

    @property
    def state(self) -> CommandState:
        """As last seen; `poll` looks again."""
        return self._state

    @property
    def running(self) -> bool:
        """As last seen; `poll` looks again."""
        return self._state.state == "running"

    @property
    def argv(self) -> tuple[str, ...]:
        return self._state.argv

    @property
    def result(self) -> CommandResult | None:
        """How it ended; None until `wait` or `kill` has returned."""
        return self._result

    @property
    def stdout_bytes(self) -> bytes:
        """All of it when `result` is there, else the beginning as last seen."""
        return self._result.stdout_bytes if self._result else self._state.stdout

    @property
    def stderr_bytes(self) -> bytes:
        return self._result.stderr_bytes if self._result else self._state.stderr

    @property
    def stdout(self) -> str:
        return self.stdout_bytes.decode("utf-8", errors="replace")

    @property
    def stderr(self) -> str:
        return self.stderr_bytes.decode("utf-8", errors="replace")

    async def poll(self) -> bool:
        """Looks at it again; whether it still runs."""
        if not self._state.ended:
            self._state = await self._get(0)
        return self.running

    async def wait(self, timeout: float | None = None) -> CommandResult:
        """Waits for its end. DeadlineExceededError when it still runs after `timeout` seconds: it
        goes on running. SandboxFailedError when its sandbox ended before it.
        """
        if timeout is not None:
            seconds("timeout", timeout, least=0)
        return await self._wait(timeout, _MARGIN_SECONDS)

    async def _wait(self, timeout: float | None, late: float) -> CommandResult:
        """The last answer may come so `late`."""
        loop = asyncio.get_running_loop()
        deadline = math.inf if timeout is None else loop.time() + timeout
        while not self._state.ended:
            asked = loop.time()
            wait = min(_SLICE_SECONDS, max(0.001, deadline - asked))
            margin = min(_MARGIN_SECONDS, deadline + late - asked - wait)
            self._state = await self._get(wait, margin)
            if self._state.ended:
                break
            if loop.time() >= deadline:
                raise DeadlineExceededError(
                    f"command {self.id} still runs after {timeout:g} s", object=self.id
                )
            if (
                loop.time() - asked < _LONGEST_PAUSE
            ):  # a server that does not wait is not to be flooded
                await asyncio.sleep(_LONGEST_PAUSE)
        return await self._collect()

    async def kill(self) -> CommandResult:
        """Kills its whole process group, descendants that left it included, and returns how it
        ended.
        """
        if not self._state.ended:
            self._state = await self._client._request(
                _codec.command_ref("killCommand", self.sandbox_id, self.id), "command", long=True
            )
        return await self.wait(_SLICE_SECONDS)

    async def read(self, stream: str, offset: int, length: int = 0) -> OutputPiece:
        """A piece of "stdout" or "stderr" from `offset` on, at once. Works while it runs."""
        length = min(length or _codec.MAX_DATA_BYTES, _codec.MAX_DATA_BYTES)
        piece: OutputPiece = await self._client._request(
            _codec.read_output(
                self.sandbox_id, self.id, stderr=stream == STDERR, offset=offset, length=length
            ),
            "output",
        )
        return piece

    async def stream(self) -> AsyncGenerator[tuple[str, bytes], None]:
        """("stdout" or "stderr", bytes) as they come, until it has ended and all was read. The
        server sends them by itself, and no more than was taken and a little ahead.

        Of a command that writes more than its output limit, the first half of the limit comes while
        it runs, the last half when it has ended; the middle is dropped, as in `result`. IoError, at
        the end, when output was lost that is within the limit.
        """
        lost: dict[str, tuple[int, int]] = {}
        async for name, data in self._streams((STDOUT, STDERR), lost):
            yield name, data
        if lost:
            raise lost_output(self.id, lost)

    def _streams(
        self, names: Sequence[str], lost: dict[str, tuple[int, int]]
    ) -> AsyncGenerator[tuple[str, bytes], None]:
        return merge({name: self._follow(name, lost) for name in names})

    async def _follow(
        self, name: str, lost: dict[str, tuple[int, int]]
    ) -> AsyncGenerator[bytes, None]:
        """One stream to its end; what is missing there goes to `lost`."""

        def source(offset: int) -> _codec.Source:
            return _codec.output_source(
                self.sandbox_id, self.id, stderr=name == STDERR, offset=offset
            )

        end = 0
        # Of a command whose sandbox ended before it this is all; `wait` says what became of it.
        with contextlib.suppress(SandboxFailedError):
            async for piece in follow(self._client, source):
                end = piece.offset + len(piece.data)
                if piece.data:
                    yield piece.data
                if piece.last and end < piece.total:
                    lost[name] = (piece.total - end, piece.total)

    async def _get(self, wait_seconds: float, margin: float = _MARGIN_SECONDS) -> CommandState:
        state: CommandState = await self._client._request(
            _codec.command_ref(
                "getCommand", self.sandbox_id, self.id, wait_ms=int(wait_seconds * 1000)
            ),
            "command",
            timeout=wait_seconds + margin if wait_seconds else REQUEST_SECONDS,
            long=wait_seconds > 0,
        )
        return state

    async def _collect(self) -> CommandResult:
        """The result with its whole output: what did not come in the reply is fetched in pieces."""
        if self._result is None:
            s = self._state
            lost: dict[str, tuple[int, int]] = {}
            stdout, stdout_dropped = await self._rest(
                STDOUT, s.stdout, s.stdout_total, s.stdout_truncated, lost
            )
            stderr, stderr_dropped = await self._rest(
                STDERR, s.stderr, s.stderr_total, s.stderr_truncated, lost
            )
            self._result = CommandResult(
                command_id=s.id,
                exit_code=s.exit_code,
                signal=s.signal,
                timed_out=s.timed_out,
                oom_killed=s.oom_killed,
                stdout_bytes=stdout,
                stderr_bytes=stderr,
                stdout_total=s.stdout_total,
                stderr_total=s.stderr_total,
                stdout_truncated=s.stdout_truncated or bool(stdout_dropped),
                stderr_truncated=s.stderr_truncated or bool(stderr_dropped),
                duration=s.duration_us / 1e6,
                stdout_dropped=stdout_dropped,
                stderr_dropped=stderr_dropped,
                error=lost_output(s.id, lost) if lost else None,
            )
        return self._result

    async def _rest(
        self,
        stream: str,
        inline: bytes,
        total: int,
        truncated: bool,
        lost: dict[str, tuple[int, int]],
    ) -> tuple[bytes, tuple[tuple[int, int], ...]]:
        if not truncated and len(inline) >= total:
            return inline, ()
        # Where bytes were dropped is told by pieces only, so truncated output is read from its
        # beginning.
        pieces = [] if truncated else [inline]
        offset = 0 if truncated else len(inline)
        dropped: list[tuple[int, int]] = []
        while offset < total:
            piece = await self.read(stream, offset)
            if piece.offset > offset:
                dropped.append((offset, piece.offset - offset))
            elif not piece.data:  # what the daemon's disk did not take is not there
                dropped.append((offset, total - offset))
                lost[stream] = (total - offset, total)
                break
            pieces.append(piece.data)
            offset = piece.offset + len(piece.data)
        return b"".join(pieces), tuple(dropped)


class AsyncCommands:
    """`sandbox.commands`."""

    def __init__(self, client: DSecClient, sandbox_id: str) -> None:
        self._client = client
        self._sandbox_id = sandbox_id

    async def run(
        self,
        cmd: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        stdin: str | bytes = b"",
        timeout: float | None = None,
        output_limit: int = 0,
        use_entrypoint: bool = False,
        check: bool = False,
        on_stdout: Callable[[bytes], object] | None = None,
        on_stderr: Callable[[bytes], object] | None = None,
    ) -> CommandResult:
        """Runs a command and waits for its end; a text is run by the image's shell, a list as it
        is, and with `use_entrypoint` after the image's Entrypoint ([]: with the image's Cmd).

        After `timeout` seconds all of its processes are killed and the result says `timed_out`. Of
        each output stream `output_limit` bytes are kept (0: the server's default), the first and
        the last half; output that the daemon's disk did not take is the result's `error`. A
        non-zero exit is a result. With `check` it is CommandFailed, and lost output IoError.
        `on_stdout` and `on_stderr` are called with each piece of output as it comes; the result has
        all of it as well. Cancelling, or an exception of theirs, kills the command.
        """
        command_id = uuid.uuid4().hex
        watchers = {n: f for n, f in ((STDOUT, on_stdout), (STDERR, on_stderr)) if f is not None}
        fill = self._exec(
            command_id,
            cmd, cwd, env, user, stdin, timeout, output_limit,
            use_entrypoint=use_entrypoint, wait=not watchers,
        )  # fmt: skip
        try:
            if watchers:
                result = await self._run_watched(fill, watchers)
            else:
                result = await self._run(fill, command_id, timeout)
        except DSecError:
            raise
        except BaseException:
            await self._client._clean_up(self._kill_quietly(command_id))
            raise
        if check and not result.ok:
            raise result.error or CommandFailed(result)
        return result

    async def start(
        self,
        cmd: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        stdin: str | bytes = b"",
        timeout: float | None = None,
        output_limit: int = 0,
        use_entrypoint: bool = False,
        command_id: str | None = None,
    ) -> AsyncCommand:
        """Starts a command and returns without waiting for its end. Arguments are those of `run`.

        A `command_id` of the caller's choice makes it idempotent: a known one is not started again,
        and the handle is the first one's.
        """
        fill = self._exec(
            command_id or uuid.uuid4().hex,
            cmd, cwd, env, user, stdin, timeout, output_limit,
            use_entrypoint=use_entrypoint, wait=False,
        )  # fmt: skip
        return AsyncCommand(self._client, await self._client._request(fill, "command"))

    async def list(self) -> list[AsyncCommand]:
        """All commands that the server remembers of this sandbox."""
        states = await self._client._request(
            _codec.sandbox_ref("listCommands", self._sandbox_id), "commands"
        )
        if isinstance(states, _codec.PartialList):
            states.warn("commands, the newest,")
        return [AsyncCommand(self._client, state) for state in states]

    async def get(self, command_id: str) -> AsyncCommand:
        """A command by its id, whoever has started it and whether or not it still runs.
        NotFoundError when there is none.
        """
        state = await self._client._request(
            _codec.command_ref("getCommand", self._sandbox_id, command_id), "command"
        )
        return AsyncCommand(self._client, state)

    connect = get

    async def _run(
        self, fill: _codec.Fill, command_id: str, timeout: float | None
    ) -> CommandResult:
        loop = asyncio.get_running_loop()
        wait = _SLICE_SECONDS if timeout is None else min(timeout, _SLICE_SECONDS)
        # The server ends it at its limit; the margin is for a server that does not.
        deadline = math.inf if timeout is None else loop.time() + timeout + _MARGIN_SECONDS
        command = await self._start_and_wait(fill, command_id, wait, deadline)
        if command.state.ended:
            return await command._collect()
        if timeout is None:
            return await command.wait()
        return await command._wait(max(0.001, deadline - loop.time()), _LAST_SECONDS)

    async def _run_watched(
        self, fill: _codec.Fill, watchers: Mapping[str, Callable[[bytes], object]]
    ) -> CommandResult:
        command = AsyncCommand(self._client, await self._client._request(fill, "command"))
        async with contextlib.aclosing(command._streams(tuple(watchers), {})) as pieces:
            async for name, data in pieces:
                watchers[name](data)
        return await command.wait()

    async def _start_and_wait(
        self, fill: _codec.Fill, command_id: str, wait: float, deadline: float
    ) -> AsyncCommand:
        """The command, ended or after `wait` seconds; an error at `deadline` at the latest."""
        loop = asyncio.get_running_loop()
        for attempt in (1, 2):
            remaining = max(0.001, deadline - loop.time())
            try:
                state = await self._client._request(
                    fill, "command", timeout=min(wait + _MARGIN_SECONDS, remaining), long=True
                )
                return AsyncCommand(self._client, state)
            except (DeadlineExceededError, UnavailableError) as error:
                late = error
            remaining = deadline - loop.time()
            if remaining <= 0:
                raise DeadlineExceededError(
                    f"whether command {command_id} has ended is not known: {late.message}",
                    object=command_id,
                )
            try:  # it runs longer than one slice, or was never started: the daemon was away
                return AsyncCommand(
                    self._client,
                    await self._client._request(
                        _codec.command_ref("getCommand", self._sandbox_id, command_id),
                        "command",
                        timeout=min(REQUEST_SECONDS, remaining),
                    ),
                )
            except NotFoundError:
                if attempt == 2 or isinstance(late, DeadlineExceededError):
                    raise late from None
        raise AssertionError("not reached")

    async def _kill_quietly(self, command_id: str) -> None:
        with contextlib.suppress(DSecError):
            await self._client._request(
                _codec.command_ref("killCommand", self._sandbox_id, command_id), "command"
            )

    def _exec(
        self,
        command_id: str,
        cmd: str | Sequence[str],
        cwd: str | None,
        env: Mapping[str, str] | None,
        user: str | None,
        stdin: str | bytes,
        timeout: float | None,
        output_limit: int,
        *,
        use_entrypoint: bool = False,
        wait: bool,
    ) -> _codec.Fill:
        if not cmd and not use_entrypoint:
            raise InvalidArgumentError("the command is empty")
        if use_entrypoint and isinstance(cmd, str):
            raise InvalidArgumentError("use_entrypoint takes a list of arguments, not a text")
        data = octets("stdin", stdin)
        if len(data) > _codec.MAX_DATA_BYTES:
            raise TooLargeError(
                f"stdin has {len(data)} bytes, {_codec.MAX_DATA_BYTES} are allowed: write it "
                "to a file with files.write() and redirect from there"
            )
        if timeout is not None:
            seconds("timeout", timeout)
        shell = cmd if isinstance(cmd, str) else ""
        return _codec.exec_command(
            sandbox_id=self._sandbox_id,
            command_id=command_id,
            argv=() if shell else cmd,
            shell=shell,
            env=env or {},
            cwd=cwd or "",
            user=user or "",
            stdin=data,
            timeout_ms=0 if timeout is None else max(1, round(timeout * 1000)),
            output_limit=output_limit,
            use_entrypoint=use_entrypoint,
            wait=wait,
        )

"""Commands of one sandbox, synchronously: AsyncCommand and AsyncCommands from any thread.

Every call finds this process's client for the endpoint, so that handles work after a fork.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ._async_commands import AsyncCommand
from ._client import DSecClient, shared_client
from ._config import Endpoint
from ._loop import loop_thread
from .models import CommandResult, CommandState, OutputPiece

if TYPE_CHECKING:
    from ._sync import Sandbox

T = TypeVar("T")


def call(endpoint: Endpoint, work: Callable[[DSecClient], Coroutine[Any, Any, T]]) -> T:
    async def run() -> T:
        return await work(await shared_client(endpoint))

    return loop_thread.run(run)


class Command:
    """A started command: `.wait()`, `.kill()`, `for stream, data in command.stream()`."""

    def __init__(self, endpoint: Endpoint, command: AsyncCommand) -> None:
        self._endpoint = endpoint
        self._command = command

    def _do(self, method: Callable[[AsyncCommand], Awaitable[T]]) -> T:
        async def work(client: DSecClient) -> T:
            self._command._client = client  # another one after a fork
            return await method(self._command)

        return call(self._endpoint, work)

    @property
    def id(self) -> str:
        return self._command.id

    @property
    def sandbox_id(self) -> str:
        return self._command.sandbox_id

    @property
    def state(self) -> CommandState:
        """As last seen; `poll` looks again."""
        return self._command.state

    @property
    def running(self) -> bool:
        """As last seen; `poll` looks again."""
        return self._command.running

    @property
    def argv(self) -> tuple[str, ...]:
        return self._command.argv

    @property
    def result(self) -> CommandResult | None:
        """How it ended; None until `wait` or `kill` has returned."""
        return self._command.result

    @property
    def stdout_bytes(self) -> bytes:
        """All of it when `result` is there, else the beginning as last seen."""
        return self._command.stdout_bytes

    @property
    def stderr_bytes(self) -> bytes:
        return self._command.stderr_bytes

    @property
    def stdout(self) -> str:
        return self._command.stdout

    @property
    def stderr(self) -> str:
        return self._command.stderr

    def poll(self) -> bool:
        """Looks at it again; whether it still runs."""
        return self._do(lambda c: c.poll())

    def wait(self, timeout: float | None = None) -> CommandResult:
        """Waits for its end. DeadlineExceededError when it still runs after `timeout` seconds: it
        goes on running. SandboxFailedError when its sandbox ended before it.
        """
        return self._do(lambda c: c.wait(timeout))

    def kill(self) -> CommandResult:
        """Kills its whole process group, descendants that left it included, and returns how it
        ended.
        """
        return self._do(lambda c: c.kill())

    def read(self, stream: str, offset: int, length: int = 0) -> OutputPiece:
        """A piece of "stdout" or "stderr" from `offset` on, at once. Works while it runs."""
        return self._do(lambda c: c.read(stream, offset, length))

    def stream(self) -> Iterator[tuple[str, bytes]]:
        """("stdout" or "stderr", bytes) as they come, until it has ended and all was read. IoError,
        at the end, when output was lost that is within the output limit.
        """
        pieces = self._command.stream()
        while (piece := self._do(lambda c: anext(pieces, None))) is not None:
            yield piece


class Commands:
    """`sandbox.commands`."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def run(
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
        `on_stdout` and `on_stderr` are called with each piece of output as it comes, on the
        library's own thread, where nothing of this interface can be called; the result has all of
        it as well. KeyboardInterrupt, or an exception of theirs, kills the command.
        """
        return self._sandbox._do(
            lambda s: s.commands.run(
                cmd,
                cwd=cwd,
                env=env,
                user=user,
                stdin=stdin,
                timeout=timeout,
                output_limit=output_limit,
                use_entrypoint=use_entrypoint,
                check=check,
                on_stdout=on_stdout,
                on_stderr=on_stderr,
            )
        )

    def start(
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
    ) -> Command:
        """Starts a command and returns without waiting for its end. Arguments are those of `run`.

        A `command_id` of the caller's choice makes it idempotent: a known one is not started again,
        and the handle is the first one's.
        """
        command = self._sandbox._do(
            lambda s: s.commands.start(
                cmd,
                cwd=cwd,
                env=env,
                user=user,
                stdin=stdin,
                timeout=timeout,
                output_limit=output_limit,
                use_entrypoint=use_entrypoint,
                command_id=command_id,
            )
        )
        return Command(self._sandbox._endpoint, command)

    def list(self) -> list[Command]:
        """All commands that the server remembers of this sandbox."""
        commands = self._sandbox._do(lambda s: s.commands.list())
        return [Command(self._sandbox._endpoint, c) for c in commands]

    def get(self, command_id: str) -> Command:
        """A command by its id, whoever has started it and whether or not it still runs.
        NotFoundError when there is none.
        """
        command = self._sandbox._do(lambda s: s.commands.get(command_id))
        return Command(self._sandbox._endpoint, command)

    connect = get

"""Sandbox: the synchronous interface, with AsyncSandbox's names. Any thread, also after fork(2).

A Sandbox holds the endpoint and the id, not a connection: every call finds this process's client
for the endpoint.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from ._async_commands import AsyncCommand
from ._async_sandbox import AsyncSandbox
from ._client import CREATE_SECONDS, DSecClient, shared_client
from ._config import Endpoint, resolve
from ._loop import loop_thread
from .errors import DSecError, NotFoundError
from .models import CommandResult, CommandState, OutputPiece, SandboxInfo

T = TypeVar("T")


def _call(endpoint: Endpoint, work: Callable[[DSecClient], Coroutine[Any, Any, T]]) -> T:
    async def run() -> T:
        return await work(await shared_client(endpoint))

    return loop_thread.run(run())


class Command:
    """A started command: `.wait()`, `.kill()`, `for stream, data in command.stream()`."""

    def __init__(self, endpoint: Endpoint, command: AsyncCommand) -> None:
        self._endpoint = endpoint
        self._command = command

    def _do(self, method: Callable[[AsyncCommand], Awaitable[T]]) -> T:
        async def work(client: DSecClient) -> T:
            self._command._client = client  # another one after a fork
            return await method(self._command)

        return _call(self._endpoint, work)

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
        """("stdout" or "stderr", bytes) as they come, until it has ended and all was read."""
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
        check: bool = False,
    ) -> CommandResult:
        """Runs a command and waits for its end; a text is run by the image's shell, a list as it
        is.

        After `timeout` seconds all of its processes are killed and the result says `timed_out`. Of
        each output stream `output_limit` bytes are kept (0: the server's default), the first and
        the last half. A non-zero exit is a result, or CommandFailed with `check`. KeyboardInterrupt
        kills the command.
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
                check=check,
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
                command_id=command_id,
            )
        )
        return Command(self._sandbox._endpoint, command)

    def list(self) -> list[Command]:
        """All commands that the server remembers of this sandbox."""
        commands = self._sandbox._do(lambda s: s.commands.list())
        return [Command(self._sandbox._endpoint, c) for c in commands]

    def get(self, command_id: str) -> Command:
        """A command by its id. NotFoundError when there is none."""
        command = self._sandbox._do(lambda s: s.commands.get(command_id))
        return Command(self._sandbox._endpoint, command)


class Files:
    """`sandbox.files`. Paths are absolute; `user` is whose permissions count (default: the
    sandbox's user).
    """

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def read(self, path: str, *, user: str | None = None) -> bytes:
        """The whole file. NotFoundError, PermissionDeniedError."""
        return self._sandbox._do(lambda s: s.files.read(path, user=user))

    def write(
        self, path: str, data: bytes | str, *, mode: int = 0, user: str | None = None
    ) -> None:
        """Replaces the file's content; text is written as UTF-8. Missing parent directories are
        made.
        """
        self._sandbox._do(lambda s: s.files.write(path, data, mode=mode, user=user))

    def read_text(self, path: str, *, user: str | None = None, encoding: str = "utf-8") -> str:
        """The whole file as text; bytes that are none become U+FFFD."""
        return self._sandbox._do(lambda s: s.files.read_text(path, user=user, encoding=encoding))

    def write_text(
        self,
        path: str,
        text: str,
        *,
        mode: int = 0,
        user: str | None = None,
        encoding: str = "utf-8",
    ) -> None:
        """As `write`."""
        self._sandbox._do(
            lambda s: s.files.write_text(path, text, mode=mode, user=user, encoding=encoding)
        )


class Sandbox:
    """`with Sandbox.create("debian-python:12") as sandbox:` stops it at the end.

    One made by `connect` is left running: who created it stops it.
    """

    def __init__(self, endpoint: Endpoint, info: SandboxInfo, *, owned: bool) -> None:
        self._endpoint = endpoint
        self._info = info
        self._owned = owned
        self.commands = Commands(self)
        self.files = Files(self)

    def _do(self, method: Callable[[AsyncSandbox], Awaitable[T]]) -> T:
        async def work(client: DSecClient) -> T:
            return await method(AsyncSandbox(client, self._info))

        return _call(self._endpoint, work)

    @classmethod
    def create(
        cls,
        image: str,
        *,
        workspace: str | None = None,
        toolkits: Sequence[str] = (),
        cpu: float = 0,
        memory_mb: int = 0,
        pids: int = 0,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        workdir: str | None = None,
        timeout: float = CREATE_SECONDS,
        idle_ttl: float = 0,
        ttl: float = 0,
        network_rules: Mapping[str, bool] | None = None,
        labels: Mapping[str, str] | None = None,
        hostname: str | None = None,
        idempotency_key: str | None = None,
    ) -> Sandbox:
        """Creates a sandbox and returns it running.

        `image` is the base layer, `workspace` and `toolkits` (bottom to top) are layers over it.
        Limits of 0 are the server's defaults. `timeout` bounds the creation; `idle_ttl` (without a
        request) and `ttl` (since creation), in seconds, bound its life, 0 does not. CapacityError
        when it is not admitted in time. The same `idempotency_key` with the same arguments gives
        the same sandbox, with others ConflictError.
        """
        endpoint = resolve()
        made: list[SandboxInfo] = []

        async def work(client: DSecClient) -> SandboxInfo:
            sandbox = await AsyncSandbox.create(
                image, workspace=workspace, toolkits=toolkits, cpu=cpu, memory_mb=memory_mb,
                pids=pids, env=env, user=user, workdir=workdir, timeout=timeout,
                idle_ttl=idle_ttl, ttl=ttl, network_rules=network_rules, labels=labels,
                hostname=hostname, idempotency_key=idempotency_key, client=client,
            )  # fmt: skip
            made.append(sandbox._info)
            return sandbox._info

        try:
            return cls(endpoint, _call(endpoint, work), owned=True)
        except BaseException:
            # Interrupted between its creation and here: nobody else can know of it.
            if made and idempotency_key is None:
                with contextlib.suppress(DSecError):
                    _call(endpoint, lambda client: client.stop_sandbox(made[0].id))
            raise

    @classmethod
    def connect(cls, sandbox_id: str) -> Sandbox:
        """A sandbox that exists already. NotFoundError when it does not."""
        endpoint = resolve()
        info = _call(endpoint, lambda client: client.get_sandbox(sandbox_id))
        return cls(endpoint, info, owned=False)

    @classmethod
    def list(cls) -> list[SandboxInfo]:
        """The caller's sandboxes, ended ones included until the server forgets them."""
        return _call(resolve(), lambda client: client.list_sandboxes())

    @property
    def id(self) -> str:
        return self._info.id

    @property
    def phase(self) -> str:
        """As last seen by create, connect, info or stop."""
        return self._info.phase

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was accepted at creation but has no effect yet."""
        return self._info.warnings

    def info(self) -> SandboxInfo:
        """Its present state, asked of the server."""
        self._info = self._do(lambda s: s.info())
        return self._info

    def run_shell(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        stdin: str | bytes = b"",
        timeout: float | None = None,
        check: bool = False,
    ) -> CommandResult:
        """`commands.run` of a shell command. NoShellError when the image has none."""
        return self.commands.run(
            command, cwd=cwd, env=env, user=user, stdin=stdin, timeout=timeout, check=check
        )

    def stop(self) -> SandboxInfo:
        """Ends it with all that runs inside and returns its final state. Idempotent."""
        self._info = self._do(lambda s: s.stop())
        return self._info

    kill = stop

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, exc_type: object, exc: object, traceback: object) -> None:
        if not self._owned:
            return
        # The body's own exception says more than a failed stop would.
        suppressed = DSecError if exc_type is not None else NotFoundError
        with contextlib.suppress(suppressed):
            self.stop()

    def __repr__(self) -> str:
        return f"<Sandbox {self.id} {self.phase}>"

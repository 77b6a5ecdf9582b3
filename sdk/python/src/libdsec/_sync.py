"""Sandbox: the synchronous interface, with AsyncSandbox's names. Any thread, also after fork(2).

A Sandbox holds the endpoint and the id, not a connection: every call finds this process's client
for the endpoint.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from . import _create_many
from ._async_sandbox import AsyncSandbox
from ._client import CREATE_SECONDS, CreateOptions, DSecClient, DSecContainerRunArgs
from ._config import Endpoint, resolve
from ._sync_commands import Commands, call
from .errors import DSecError, NotFoundError
from .models import CommandResult, CreateResult, OnFailure, SandboxInfo

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")


class Files:
    """`sandbox.files`. Paths are absolute; `user` is whose permissions count (default: the
    sandbox's user).
    """

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def read(self, path: str, *, user: str | None = None) -> bytes:
        """The whole file. NotFoundError, PermissionDeniedError."""
        return self._sandbox._do(lambda s: s.files.read(path, user=user))

    def stream(self, path: str, *, user: str | None = None) -> Iterator[bytes]:
        """The file in pieces, of which only a few are in memory at a time. As `read`."""
        pieces: AsyncGenerator[bytes, None] | None = None

        async def next_piece(sandbox: AsyncSandbox) -> bytes | None:
            nonlocal pieces
            if pieces is None:
                pieces = sandbox.files.stream(path, user=user)
            return await anext(pieces, None)

        while (piece := self._sandbox._do(next_piece)) is not None:
            yield piece

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

    One made by `connect` is left running: who created it stops it. So is a detached one.
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

        return call(self._endpoint, work)

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
        detached: bool = False,
        on_failure: OnFailure = "none",
        idempotency_key: str | None = None,
    ) -> Sandbox:
        """Creates a sandbox and returns it running.

        `image` is the base layer, `workspace` and `toolkits` (bottom to top) are layers over it.
        Limits of 0 are the server's defaults. `timeout` bounds the creation; `idle_ttl` (without a
        request) and `ttl` (since creation), in seconds, bound its life, 0 does not. It ends with
        this process's lease, the server's default after the process has gone, unless it is
        `detached`. CapacityError when it is not admitted in time. The same `idempotency_key` with
        the same arguments gives the same sandbox, with others ConflictError. `on_failure="snapshot"`
        asks for its files to be kept when it fails by itself; a server that cannot says so in
        `warnings`.
        """
        endpoint = resolve()
        made: list[SandboxInfo] = []

        async def work(client: DSecClient) -> SandboxInfo:
            sandbox = await AsyncSandbox.create(
                image, workspace=workspace, toolkits=toolkits, cpu=cpu, memory_mb=memory_mb,
                pids=pids, env=env, user=user, workdir=workdir, timeout=timeout,
                idle_ttl=idle_ttl, ttl=ttl, network_rules=network_rules, labels=labels,
                hostname=hostname, detached=detached, on_failure=on_failure,
                idempotency_key=idempotency_key, client=client,
            )  # fmt: skip
            made.append(sandbox._info)
            return sandbox._info

        try:
            return cls(endpoint, call(endpoint, work), owned=not detached)
        except BaseException:
            # Interrupted between its creation and here: nobody else can know of it.
            if made and idempotency_key is None:
                with contextlib.suppress(DSecError):
                    call(endpoint, lambda client: client.stop_sandbox(made[0].id))
            raise

    @classmethod
    def create_many(
        cls,
        n: int | Sequence[DSecContainerRunArgs],
        image: str | None = None,
        *,
        min_ready: int | None = None,
        timeout: float = CREATE_SECONDS,
        idempotency_key: str | None = None,
        **options: Unpack[CreateOptions],
    ) -> list[CreateResult[Sandbox]]:
        """Creates `n` sandboxes of `image` with the arguments of `create`, or one for each of a
        list of DSecContainerRunArgs, and returns a result or an error for each, in order.

        `timeout` bounds all of it. When fewer than `min_ready` come to be, those that did are
        stopped and CreateManyError is raised. With an `idempotency_key` the same call gives the
        same sandboxes again.
        """
        endpoint = resolve()
        made: list[CreateResult[AsyncSandbox]] = []

        async def work(client: DSecClient) -> None:
            made.extend(
                await AsyncSandbox.create_many(
                    n, image, min_ready=min_ready, timeout=timeout,
                    idempotency_key=idempotency_key, client=client, **options,
                )
            )  # fmt: skip

        def own(result: CreateResult[AsyncSandbox]) -> CreateResult[Sandbox]:
            made = result.sandbox
            if made is None:
                return CreateResult(result.index, error=result.error)
            return CreateResult(result.index, cls(endpoint, made._info, owned=made._owned))

        try:
            call(endpoint, work)
        except BaseException:
            if made and idempotency_key is None:  # interrupted, as in create()
                call(endpoint, lambda client: _create_many.stop_made(client, made))
            raise
        return [own(result) for result in made]

    @classmethod
    def connect(cls, sandbox_id: str) -> Sandbox:
        """A sandbox that exists already. NotFoundError when it does not."""
        endpoint = resolve()
        info = call(endpoint, lambda client: client.get_sandbox(sandbox_id))
        return cls(endpoint, info, owned=False)

    @classmethod
    def list(cls) -> list[SandboxInfo]:
        """The caller's sandboxes, ended ones included until the server forgets them."""
        return call(resolve(), lambda client: client.list_sandboxes())

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

    def detach(self) -> SandboxInfo:
        """From now on it ends neither with the lease of the client that created it nor with a
        `with` block.
        """
        self._info = self._do(lambda s: s.detach())
        self._owned = False
        return self._info

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

"""AsyncSandbox: one isolated environment, from asyncio. Lives on its client's event loop."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from . import _create_many
from ._async_commands import AsyncCommands
from ._async_files import AsyncFiles
from ._client import (
    CREATE_SECONDS,
    CreateOptions,
    DSecClient,
    DSecContainerRunArgs,
    container_args,
    shared_client,
)
from ._config import resolve
from .errors import DSecError, NotFoundError
from .models import CommandResult, CreateResult, OnFailure, SandboxInfo

if TYPE_CHECKING:
    from typing_extensions import Unpack


class AsyncSandbox:
    """`async with await AsyncSandbox.create("debian-python:12") as sandbox:` stops it at the end.

    One made by `connect` is left running: who created it stops it. So is a detached one.
    """

    def __init__(self, client: DSecClient, info: SandboxInfo, *, owned: bool = True) -> None:
        self._client = client
        self._info = info
        self._owned = owned
        self.commands = AsyncCommands(client, info.id)
        self.files = AsyncFiles(client, info.id)

    @classmethod
    async def create(
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
        client: DSecClient | None = None,
    ) -> AsyncSandbox:
        """Creates a sandbox and returns it running.

        `image` is the base layer, `workspace` and `toolkits` (bottom to top) are layers over it.
        Limits of 0 are the server's defaults. `timeout` bounds the creation; `idle_ttl` (without a
        request) and `ttl` (since creation), in seconds, bound its life, 0 does not. It ends with
        its client's lease (DSecClient) unless it is `detached`. `on_failure="snapshot"` asks for
        its files to be kept when it fails by itself; a server that cannot says so in `warnings`.
        """
        args = container_args(
            image, workspace=workspace, toolkits=toolkits, cpu=cpu, memory_mb=memory_mb, pids=pids,
            env=env, user=user, workdir=workdir, idle_ttl=idle_ttl, ttl=ttl,
            network_rules=network_rules, labels=labels, hostname=hostname, detached=detached,
            on_failure=on_failure,
        )  # fmt: skip
        client = client or await shared_client(resolve())
        return await client.run_container(args, timeout=timeout, idempotency_key=idempotency_key)

    @classmethod
    async def create_many(
        cls,
        n: int | Sequence[DSecContainerRunArgs],
        image: str | None = None,
        *,
        min_ready: int | None = None,
        timeout: float = CREATE_SECONDS,
        idempotency_key: str | None = None,
        client: DSecClient | None = None,
        **options: Unpack[CreateOptions],
    ) -> list[CreateResult[AsyncSandbox]]:
        """Creates `n` sandboxes of `image` with the arguments of `create`, or one for each of a
        list of DSecContainerRunArgs, and returns a result or an error for each, in order.

        `timeout` bounds all of it. When fewer than `min_ready` come to be, those that did are
        stopped and CreateManyError is raised. With an `idempotency_key` the same call gives the
        same sandboxes again.
        """
        args = _create_many.args_of(n, image, options)
        client = client or await shared_client(resolve())
        return await _create_many.create_many(
            client, args, min_ready=min_ready, timeout=timeout, idempotency_key=idempotency_key
        )

    @classmethod
    async def connect(cls, sandbox_id: str, *, client: DSecClient | None = None) -> AsyncSandbox:
        """A sandbox that exists already. NotFoundError when it does not."""
        return await (client or await shared_client(resolve())).connect(sandbox_id)

    @classmethod
    async def list(cls, *, client: DSecClient | None = None) -> list[SandboxInfo]:
        """The caller's sandboxes, ended ones included until the server forgets them."""
        return await (client or await shared_client(resolve())).list_sandboxes()

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

    async def info(self) -> SandboxInfo:
        """Its present state, asked of the server."""
        self._info = await self._client.get_sandbox(self.id)
        return self._info

    async def run_shell(
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
        return await self.commands.run(
            command, cwd=cwd, env=env, user=user, stdin=stdin, timeout=timeout, check=check
        )

    async def detach(self) -> SandboxInfo:
        """From now on it ends neither with the lease of the client that created it nor with a
        `with` block.
        """
        self._info = await self._client.detach_sandbox(self.id)
        self._owned = False
        return self._info

    async def stop(self) -> SandboxInfo:
        """Ends it with all that runs inside and returns its final state. Idempotent."""
        self._info = await self._client.stop_sandbox(self.id)
        return self._info

    kill = stop

    async def __aenter__(self) -> AsyncSandbox:
        return self

    async def __aexit__(self, exc_type: object, exc: object, traceback: object) -> None:
        if not self._owned:
            return
        # The body's own exception says more than a failed stop would.
        suppressed = DSecError if exc_type is not None else NotFoundError
        with contextlib.suppress(suppressed):
            await self.stop()

    def __repr__(self) -> str:
        return f"<AsyncSandbox {self.id} {self.phase}>"

"""DSecClient: the connection to one daemon, and what can be asked of it as a whole.

Lives on the event loop it was opened on. Everything raises DSecError subclasses.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import uuid
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict, get_args

from . import _codec
from ._checks import seconds
from ._config import Endpoint, make_lease, resolve
from ._pool import Pool
from ._streams import Stream
from .errors import (
    DeadlineExceededError,
    DSecError,
    InvalidArgumentError,
    ProtocolError,
    UnavailableError,
)
from .models import EventPage, ImageInfo, NodeList, OnFailure, SandboxInfo, Usage

if TYPE_CHECKING:
    from ._async_sandbox import AsyncSandbox

REQUEST_SECONDS = 60.0
"""Deadline of requests that wait for nothing but the daemon itself."""
CREATE_SECONDS = 120.0
_CLEAN_UP_SECONDS = 2.0


@dataclass
class DSecContainerRunArgs:
    """What a container sandbox is made of. Zero, empty and None mean the server's, or the image's,
    default.
    """

    container_image: str
    """Base layer, NAME:TAG."""
    workspace: str | None = None
    toolkits: Sequence[str] = ()
    """Bottom to top."""
    memory_limit_mb: int = 0
    cpu_cores_limit: float = 0
    pids_limit: int = 0
    ttl_running_stop: float = 0
    """Seconds without a request after which it is stopped; 0 = never."""
    ttl_absolute_stop: float = 0
    """Seconds after creation at which it is stopped; 0 = never."""
    network_rules: Mapping[str, bool] = field(default_factory=dict)
    init_user: str | None = None
    workdir: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    hostname: str | None = None
    backend: str = ""
    detached: bool = False
    """It does not end with the client's lease."""
    on_failure: OnFailure = "none"
    """What becomes of its writable layer when it fails by itself."""

    def to_request(self) -> _codec.Fill:
        """The request's body. InvalidArgumentError for what no server could accept."""
        if not self.container_image:
            raise InvalidArgumentError("a sandbox needs an image: name one as NAME:TAG")
        if isinstance(self.toolkits, str):
            raise InvalidArgumentError(
                f"toolkits is a list of names, not the text {self.toolkits!r}"
            )
        if not isinstance(self.network_rules, Mapping):
            raise InvalidArgumentError(
                f"network rules are names with True or False each, not {self.network_rules!r}"
            )
        for service, allow in self.network_rules.items():
            if not isinstance(allow, bool):
                raise InvalidArgumentError(
                    f"network rule {service!r} is either True or False, not {allow!r}"
                )
        if self.on_failure not in get_args(OnFailure):
            raise InvalidArgumentError(
                f"on_failure is one of {', '.join(get_args(OnFailure))}, not {self.on_failure!r}"
            )
        return _codec.create_sandbox(
            image=self.container_image,
            workspace=self.workspace or "",
            toolkits=self.toolkits,
            cpu_millis=_scaled("cpu", self.cpu_cores_limit, 1000),
            memory_mb=_scaled("memory", self.memory_limit_mb, 1),
            pids_limit=self.pids_limit,
            idle_ttl_seconds=_scaled("idle time limit", self.ttl_running_stop, 1),
            absolute_ttl_seconds=_scaled("absolute time limit", self.ttl_absolute_stop, 1),
            env=self.env,
            init_user=self.init_user or "",
            workdir=self.workdir or "",
            network_rules=self.network_rules,
            hostname=self.hostname or "",
            labels=self.labels,
            backend=self.backend,
            detached=self.detached,
            on_failure=self.on_failure,
        )


class CreateOptions(TypedDict, total=False):
    """Keyword arguments of `Sandbox.create` that say what a sandbox is made of."""

    workspace: str | None
    toolkits: Sequence[str]
    cpu: float
    memory_mb: int
    pids: int
    env: Mapping[str, str] | None
    user: str | None
    workdir: str | None
    idle_ttl: float
    ttl: float
    network_rules: Mapping[str, bool] | None
    labels: Mapping[str, str] | None
    hostname: str | None
    detached: bool
    on_failure: OnFailure


def container_args(
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
    idle_ttl: float = 0,
    ttl: float = 0,
    network_rules: Mapping[str, bool] | None = None,
    labels: Mapping[str, str] | None = None,
    hostname: str | None = None,
    detached: bool = False,
    on_failure: OnFailure = "none",
) -> DSecContainerRunArgs:
    """The short names of `Sandbox.create` as the published ones."""
    return DSecContainerRunArgs(
        container_image=image,
        workspace=workspace,
        toolkits=toolkits,
        memory_limit_mb=memory_mb,
        cpu_cores_limit=cpu,
        pids_limit=pids,
        ttl_running_stop=idle_ttl,
        ttl_absolute_stop=ttl,
        network_rules=network_rules or {},
        init_user=user,
        workdir=workdir,
        env=env or {},
        labels=labels or {},
        hostname=hostname,
        detached=detached,
        on_failure=on_failure,
    )


def _scaled(what: str, value: float, factor: int) -> int:
    """Rounded up, because rounding a limit down to 0 would mean `the default` or `never`."""
    if not isinstance(value, (int, float)) or not 0 <= value < 2**32 / factor:
        raise InvalidArgumentError(f"{what} must be a number from 0 on, not {value!r}")
    return -int(-value * factor // 1)


class DSecClient:
    """`client = DSecClient(); await client.open()`, or `async with DSecClient() as client:`.

    Address and key come from the arguments, else DSEC_URL and DSEC_API_KEY, else the state
    directory. `ca` (or DSEC_CA) is a PEM file with the certificates that a wss:// server's must be
    signed by, instead of those of this system.

    Sandboxes live by the client's lease: `lease_seconds` (None: the server's default) after its
    last connection is gone and no new one has come, those it has created and not detached end.
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        state: str | os.PathLike[str] | None = None,
        lease_seconds: float | None = None,
        ca: str | os.PathLike[str] | None = None,
    ) -> None:
        self._lease = make_lease(lease_seconds)
        self._arguments = (url, api_key, state, ca)
        self._pool: Pool | None = None
        self._background: set[asyncio.Task[Any]] = set()
        self._finaliser: AsyncGenerator[None, None] | None = None

    @classmethod
    def _of(cls, endpoint: Endpoint) -> DSecClient:
        return cls(endpoint.url, endpoint.api_key, ca=endpoint.ca)

    async def open(self) -> None:
        """Connects and authenticates. Calling it again, also at the same time, is harmless."""
        if self._pool is None:
            self._pool = Pool(resolve(*self._arguments), self._lease)
        pool = self._pool
        try:
            await pool.open()
        except BaseException:
            if self._pool is pool and self._finaliser is None:
                self._pool = None
            raise
        if self._finaliser is None:
            # asyncio.run() closes what async generators are left: the only hook to close at the
            # loop's end.
            self._finaliser = _close_at_end(pool)
            await self._finaliser.__anext__()

    async def close(self) -> None:
        """Closes the connection. Sandboxes live on, until the lease is over unless they are
        detached. Idempotent.
        """
        if self._background:
            await asyncio.wait(self._background, timeout=_CLEAN_UP_SECONDS)
        pool, self._pool = self._pool, None
        finaliser, self._finaliser = self._finaliser, None
        if finaliser is not None:
            await finaliser.aclose()
        elif pool is not None:
            await pool.close()

    async def __aenter__(self) -> DSecClient:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    # ---- requests

    async def run_container(
        self,
        args: DSecContainerRunArgs,
        *,
        timeout: float = CREATE_SECONDS,
        idempotency_key: str | None = None,
    ) -> AsyncSandbox:
        """Creates a sandbox and returns it running.

        CapacityError when it is not admitted within `timeout` seconds. The same `idempotency_key`
        with the same arguments gives the same sandbox, SandboxFailedError when that has ended, with
        others ConflictError. A detached one outlives the client, and is not stopped when a `with`
        block of it ends.
        """
        from ._async_sandbox import AsyncSandbox

        if self._pool is not None and not args.detached:
            self._pool.keep_lease()
        seconds("timeout", timeout)
        key = idempotency_key or uuid.uuid4().hex
        own = not idempotency_key  # nobody else can know of it: it must not stay behind
        try:
            info: SandboxInfo = await self._request(
                args.to_request(), "sandbox", timeout=timeout, idempotency_key=key, long=True
            )
        except asyncio.CancelledError:
            if own:
                await self._clean_up(self._withdraw(key))
            raise
        except (DeadlineExceededError, UnavailableError, ProtocolError):
            if own:  # the server may have it, or get to it when it can
                self._in_background(self._withdraw(key))
            raise
        return AsyncSandbox(self, info, owned=not args.detached)

    async def connect(self, sandbox_id: str) -> AsyncSandbox:
        """A sandbox that exists already. NotFoundError when it does not."""
        from ._async_sandbox import AsyncSandbox

        return AsyncSandbox(self, await self.get_sandbox(sandbox_id), owned=False)

    async def get_sandbox(self, sandbox_id: str) -> SandboxInfo:
        info: SandboxInfo = await self._request(
            _codec.sandbox_ref("getSandbox", sandbox_id), "sandbox"
        )
        return info

    async def list_sandboxes(self) -> list[SandboxInfo]:
        """The caller's sandboxes, ended ones included until the server forgets them."""
        sandboxes: list[SandboxInfo] = await self._request(
            _codec.void("listSandboxes"), "sandboxes"
        )
        if isinstance(sandboxes, _codec.PartialList):
            sandboxes.warn("sandboxes, the living and those that were created last,")
        return sandboxes

    async def stop_sandbox(
        self, sandbox_id: str, *, idempotency_key: str | None = None
    ) -> SandboxInfo:
        """Stops it and returns its final state. Idempotent. With the `idempotency_key` it was
        created with that is free again: the next creation with it makes a new sandbox.
        """
        info: SandboxInfo = await self._request(
            _codec.sandbox_ref("stopSandbox", sandbox_id),
            "sandbox",
            idempotency_key=idempotency_key or "",
            long=True,
        )
        return info

    async def detach_sandbox(self, sandbox_id: str) -> SandboxInfo:
        """From now on it does not end with the lease of the client that created it."""
        info: SandboxInfo = await self._request(_codec.set_detached(sandbox_id, True), "sandbox")
        return info

    async def list_images(self) -> list[ImageInfo]:
        images: list[ImageInfo] = await self._request(_codec.void("listImages"), "images")
        return images

    async def list_events(
        self,
        *,
        after: str = "",
        trace_id: str = "",
        sandbox_id: str = "",
        limit: int = 0,
        wait: float = 0,
    ) -> EventPage:
        """What has happened to the caller's sandboxes and to the nodes, oldest first, from the
        server's memory. `after` is the `cursor` of the page before. When there is nothing the
        answer comes after up to `wait` seconds.
        """
        page: EventPage = await self._request(
            _codec.list_events(
                after=after,
                trace_id=trace_id,
                sandbox_id=sandbox_id,
                limit=limit,
                wait_ms=round(seconds("wait", wait, least=0) * 1000),
            ),
            "events",
            timeout=REQUEST_SECONDS + wait,
            long=wait > 0,
        )
        return page

    async def get_usage(self, sandbox_id: str) -> Usage:
        """What a running sandbox uses. Asking does not keep an idle one alive."""
        usage: Usage = await self._request(_codec.sandbox_ref("getUsage", sandbox_id), "usage")
        return usage

    async def list_nodes(self) -> NodeList:
        """The server's node; of a coordinator its workers."""
        nodes: NodeList = await self._request(_codec.void("listNodes"), "nodes")
        return nodes

    async def ping(self) -> None:
        """A round trip through the server that does nothing."""
        await self._request(_codec.void("ping"), "pong")

    # ---- inner parts

    async def _request(
        self,
        fill: _codec.Fill,
        expected: str,
        *,
        timeout: float = REQUEST_SECONDS,
        idempotency_key: str = "",
        long: bool = False,
    ) -> Any:
        if self._pool is None:
            raise RuntimeError("the client is not open: `await client.open()` first")
        return await self._pool.request(
            fill, expected, timeout=timeout, idempotency_key=idempotency_key, long=long
        )

    async def _open_stream(self, source: _codec.Source, credit: int) -> Stream:
        if self._pool is None:
            raise RuntimeError("the client is not open: `await client.open()` first")
        return await self._pool.open_stream(source, credit, timeout=REQUEST_SECONDS)

    async def _clean_up(self, work: Coroutine[Any, Any, Any]) -> None:
        """Runs what a cancelled call must leave behind it; what takes longer than a moment goes on
        alone.
        """
        await asyncio.wait([self._in_background(work)], timeout=_CLEAN_UP_SECONDS)

    def _in_background(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def _withdraw(self, key: str) -> None:
        """Has that creation stopped, or never made."""
        with contextlib.suppress(DSecError):  # there was none, or the lease will end it
            await self._request(
                _codec.sandbox_ref("stopSandbox", ""),
                "sandbox",
                timeout=CREATE_SECONDS,
                idempotency_key=key,
                long=True,
            )


async def _close_at_end(pool: Pool) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await pool.close()


_shared: dict[asyncio.AbstractEventLoop, dict[Endpoint, DSecClient]] = {}


async def shared_client(endpoint: Endpoint) -> DSecClient:
    """The client that all sandboxes of this event loop share for that endpoint, opened."""
    loop = asyncio.get_running_loop()
    clients = _shared.get(loop)
    if clients is None:
        for other in [other for other in _shared if other.is_closed()]:
            del _shared[other]
        clients = _shared[loop] = {}
    client = clients.get(endpoint)
    if client is None:
        client = clients[endpoint] = DSecClient._of(endpoint)
    await client.open()
    return client

"""Many sandboxes by one call, each with an answer of its own. Lives on its client's event loop.

Every item has its own idempotency key, so that nothing that happens on the way makes more than were
asked for. What a cancelled or failed call has made it stops again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ._checks import seconds
from ._client import CreateOptions, DSecClient, DSecContainerRunArgs, container_args
from .errors import CreateManyError, DeadlineExceededError, DSecError, InvalidArgumentError
from .models import CreateResult

if TYPE_CHECKING:
    from ._async_sandbox import AsyncSandbox

_IN_FLIGHT = 192
"""Requests of one call at once: what one connection takes of those that wait for something."""


def args_of(
    n: int | Sequence[DSecContainerRunArgs], image: str | None, options: CreateOptions
) -> list[DSecContainerRunArgs]:
    """What is to be created, an entry per sandbox."""
    if isinstance(n, int) and not isinstance(n, bool):
        if n < 0:
            raise InvalidArgumentError(f"cannot create {n} sandboxes")
        if image is None:
            raise InvalidArgumentError("a sandbox needs an image: name one as NAME:TAG")
        return [container_args(image, **options)] * n
    if image is not None or options:
        raise InvalidArgumentError("what is created stands in the list: give no image beside it")
    items = list(n) if isinstance(n, Iterable) else [n]
    if not all(isinstance(item, DSecContainerRunArgs) for item in items):
        raise InvalidArgumentError(
            f"what is created is a number or a list of DSecContainerRunArgs, not {n!r:.200}"
        )
    return items


async def create_many(
    client: DSecClient,
    items: Sequence[DSecContainerRunArgs],
    *,
    min_ready: int | None,
    timeout: float,
    idempotency_key: str | None,
) -> list[CreateResult[AsyncSandbox]]:
    """See AsyncSandbox.create_many."""
    seconds("timeout", timeout)
    if min_ready is not None and not (
        isinstance(min_ready, int) and 0 <= min_ready <= len(items)
    ):
        raise InvalidArgumentError(f"of {len(items)} sandboxes {min_ready} cannot become ready")
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    window = asyncio.Semaphore(_IN_FLIGHT)

    async def one(index: int, args: DSecContainerRunArgs) -> CreateResult[AsyncSandbox]:
        async with window:
            remaining = deadline - loop.time()
            key = _key_of(idempotency_key, index)
            try:
                if remaining <= 0:
                    raise DeadlineExceededError(
                        f"{timeout:g} s were over before sandbox {index} of {len(items)} was due"
                    )
                sandbox = await client.run_container(args, timeout=remaining, idempotency_key=key)
            except DSecError as error:
                return CreateResult(index, error=error)
            return CreateResult(index, sandbox=sandbox)

    tasks = [loop.create_task(one(index, args)) for index, args in enumerate(items)]
    try:
        results = await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        if idempotency_key is None:  # else whoever has the key may still want them
            await client._clean_up(_stop_when_done(client, tasks))
        raise
    if min_ready is None or sum(r.ok for r in results) >= min_ready:
        return results
    raise _too_few(results, min_ready, await stop_made(client, results, idempotency_key))


def _key_of(call: str | None, index: int) -> str | None:
    return None if call is None else f"{call}.{index}"


def _too_few(
    results: Sequence[CreateResult[AsyncSandbox]], min_ready: int, left: Sequence[str]
) -> CreateManyError:
    errors = [r.error for r in results]
    failed = [e for e in errors if e is not None]
    message = (
        f"{len(errors) - len(failed)} of {len(errors)} sandboxes came to be, {min_ready} were "
        f"needed; the first error: {failed[0].message}"
    )
    if left:
        message += f"; these could not be stopped again: {', '.join(left)}"
    return CreateManyError(message, errors=errors)


async def _stop_when_done(
    client: DSecClient, tasks: Sequence[asyncio.Task[CreateResult[AsyncSandbox]]]
) -> None:
    """Creations in flight undo themselves when they are cancelled (DSecClient.run_container)."""
    done = await asyncio.gather(*tasks, return_exceptions=True)
    await stop_made(client, [r for r in done if not isinstance(r, BaseException)])


async def stop_made(
    client: DSecClient,
    results: Sequence[CreateResult[AsyncSandbox]],
    idempotency_key: str | None = None,
) -> list[str]:
    """Stops what has come to be, and frees its keys: the same call makes it anew. The ids of those
    that could not be stopped.
    """
    window = asyncio.Semaphore(_IN_FLIGHT)
    left: list[str] = []

    async def stop(sandbox_id: str, index: int) -> None:
        async with window:
            try:
                await client.stop_sandbox(
                    sandbox_id, idempotency_key=_key_of(idempotency_key, index)
                )
            except DSecError:
                left.append(sandbox_id)

    await asyncio.gather(*(stop(r.sandbox.id, r.index) for r in results if r.sandbox is not None))
    return left

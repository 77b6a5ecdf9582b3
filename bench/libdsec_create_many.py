"""Times each item of one AsyncSandbox.create_many, then stops all; prints like `measure`.

  libdsec_create_many.py URL KEY COUNT BASE WORKSPACE TOOLKIT [--stop-meanwhile]

"ready MS": from the call until an item's sandbox ran; "item MS": from the item's own request; "elapsed MS". A sandbox
that was given twice, or is there without having been asked for, is a failure. With --stop-meanwhile a second client
stops whatever runs while the call goes on, as it must where not all fit at once.
"""
import asyncio
import sys
import time

from libdsec import AsyncSandbox, DSecClient

SECONDS = 300
STOPS_AT_ONCE = 64


class TimedClient(DSecClient):
    def __init__(self, url: str, key: str) -> None:
        super().__init__(url, key)
        self.asked: list[float] = []
        self.ready: list[float] = []

    async def run_container(self, *arguments, **options) -> AsyncSandbox:
        began = time.perf_counter()
        sandbox = await super().run_container(*arguments, **options)
        self.asked.append(began)
        self.ready.append(time.perf_counter())
        return sandbox


async def stop_all(client: DSecClient, ids: list[str]) -> None:
    window = asyncio.Semaphore(STOPS_AT_ONCE)

    async def stop(sandbox: str) -> None:
        async with window:
            await client.stop_sandbox(sandbox)

    await asyncio.gather(*(stop(each) for each in ids))


async def stop_meanwhile(client: DSecClient) -> None:
    """Until it is cancelled."""
    while True:
        await stop_all(client, [each.id for each in await client.list_sandboxes() if each.phase == "running"])
        await asyncio.sleep(0.02)


async def run(url: str, key: str, count: int, base: str, workspace: str, toolkit: str, meanwhile: bool) -> int:
    async with TimedClient(url, key) as client, DSecClient(url, key) as other:
        before = {each.id for each in await client.list_sandboxes()}
        stopping = asyncio.create_task(stop_meanwhile(other)) if meanwhile else None
        began = time.perf_counter()
        results = await AsyncSandbox.create_many(count, base, workspace=workspace, toolkits=[toolkit], memory_mb=256,
                                                 timeout=SECONDS, client=client)
        elapsed = time.perf_counter() - began
        if stopping is not None:
            stopping.cancel()
            await asyncio.gather(stopping, return_exceptions=True)
        made = [each.sandbox.id for each in results if each.ok]
        listed = [each for each in await client.list_sandboxes() if each.id not in before]
        await stop_all(client, [each.id for each in listed if each.alive])
    for asked, ready in zip(client.asked, client.ready):
        print(f"ready {(ready - began) * 1e3:.4f}\nitem {(ready - asked) * 1e3:.4f}")
    print(f"elapsed {elapsed * 1e3:.4f}")
    failed = count - len(made)
    for error in {str(each.error) for each in results if not each.ok}:
        print(error, file=sys.stderr)
    surplus = len({each.id for each in listed} ^ set(made)) + len(made) - len(set(made))
    if surplus:
        print(f"{surplus} sandboxes were given twice, not at all or for nothing", file=sys.stderr)
    print(f"failed {failed + surplus}")
    return 1 if failed + surplus else 0


def main() -> int:
    url, key, count, *images = sys.argv[1:7]
    return asyncio.run(run(url, key, int(count), *images, meanwhile="--stop-meanwhile" in sys.argv[7:]))


if __name__ == "__main__":
    sys.exit(main())

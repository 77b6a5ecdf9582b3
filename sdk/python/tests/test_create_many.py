"""Many sandboxes by one call: an answer for each, nothing made twice, nothing left behind."""

from __future__ import annotations

import asyncio
import pickle
import threading
import time

import pytest

from fake_server import FakeServer, eventually, until
from libdsec import (
    AsyncSandbox,
    CapacityError,
    CreateManyError,
    CreateResult,
    DeadlineExceededError,
    DSecClient,
    DSecContainerRunArgs,
    InvalidArgumentError,
    NotFoundError,
    Sandbox,
    SandboxFailedError,
    _codec,
)


def living(server: FakeServer) -> list[str]:
    return [i for i, s in server.sandboxes.items() if s["phase"] == "running"]


def test_a_number_and_the_arguments_of_create(server: FakeServer):
    results = Sandbox.create_many(5, "tiny:1", cpu=2, memory_mb=64, labels={"a": "b"})
    assert [r.index for r in results] == list(range(5))
    assert all(r.ok and r.error is None for r in results)
    assert len({r.unwrap().id for r in results}) == 5
    assert {(s["cpuMillis"], s["memoryMb"]) for s in server.sandboxes.values()} == {(2000, 64)}
    with results[0].unwrap() as sb:
        assert sb.commands.run("echo hi").stdout == "hi\n"
    assert sb.id not in living(server)
    assert len(living(server)) == 4


def test_a_list_and_an_exact_answer_for_each(server: FakeServer):
    server.refused_images = {"none:1"}
    images = ["none:1" if i % 20 == 7 else f"tiny:{i}" for i in range(200)]
    results = Sandbox.create_many([DSecContainerRunArgs(image) for image in images])
    for image, result in zip(images, results, strict=True):
        if image == "none:1":
            assert isinstance(result.error, NotFoundError)
            assert not result.ok
            with pytest.raises(NotFoundError):
                result.unwrap()
        else:
            assert server.sandboxes[result.unwrap().id]["image"] == image
    assert len(living(server)) == 190


def test_an_item_that_no_server_could_accept_is_that_items_error(server: FakeServer):
    good, bad = DSecContainerRunArgs("tiny:1"), DSecContainerRunArgs("tiny:1", memory_limit_mb=-1)
    first, second = Sandbox.create_many([good, bad])
    assert first.ok
    assert isinstance(second.error, InvalidArgumentError)


@pytest.mark.parametrize(
    "arguments",
    [(-1, "tiny:1"), (3,), ([], "tiny:1"), (["tiny:1"],), ("tiny:1",), (None,), (2.5, "tiny:1")],
)
def test_wrong_arguments_create_nothing(server: FakeServer, arguments):
    with pytest.raises(InvalidArgumentError):
        Sandbox.create_many(*arguments)
    with pytest.raises(InvalidArgumentError):
        Sandbox.create_many(3, "tiny:1", min_ready=4)
    with pytest.raises(TypeError):
        Sandbox.create_many(3, "tiny:1", memory=4)
    assert server.creates == 0


def test_none_at_all(server: FakeServer):
    assert Sandbox.create_many(0, "tiny:1") == []


def test_a_thousand_go_over_one_connection_within_its_limit(server: FakeServer):
    server.create_delay = 0.05
    results = Sandbox.create_many(1000, "tiny:1")
    assert len({r.unwrap().id for r in results}) == server.creates == 1000
    assert server.connections == 1
    assert 100 < server.most_in_flight <= _codec.MAX_IN_FLIGHT


def test_restarts_on_the_way_make_no_more_than_were_asked_for(server: FakeServer):
    server.create_delay = 0.02
    server.lose_after["createSandbox"] = 5

    async def main():
        async with DSecClient() as client:
            making = asyncio.create_task(AsyncSandbox.create_many(400, "tiny:1", client=client))
            while not making.done():
                await asyncio.sleep(0.1)
                await asyncio.to_thread(server.restart)
            return await making

    results = asyncio.run(main())
    assert len({r.unwrap().id for r in results}) == server.creates == 400


def test_a_key_makes_the_whole_call_repeatable(server: FakeServer):
    first = Sandbox.create_many(10, "tiny:1", idempotency_key="run-7")
    second = Sandbox.create_many(10, "tiny:1", idempotency_key="run-7")
    assert [r.unwrap().id for r in first] == [r.unwrap().id for r in second]
    assert server.creates == 10


def test_enough_ready_is_a_success(server: FakeServer):
    server.refused_images = {"none:1"}
    images = ["tiny:1", "none:1", "tiny:1"]
    results = Sandbox.create_many([DSecContainerRunArgs(i) for i in images], min_ready=2)
    assert [r.ok for r in results] == [True, False, True]
    assert len(living(server)) == 2


def test_too_few_ready_stops_those_that_are_and_tells_why(server: FakeServer):
    server.refused_images = {"none:1"}
    images = ["tiny:1", "none:1", "tiny:1", "none:1"]
    with pytest.raises(CreateManyError, match="2 of 4 sandboxes came to be, 3 were needed") as e:
        Sandbox.create_many([DSecContainerRunArgs(i) for i in images], min_ready=3)
    assert [type(error) for error in e.value.errors] == [
        type(None), NotFoundError, type(None), NotFoundError,
    ]  # fmt: skip
    assert (e.value.code, e.value.exit_code, e.value.retryable) == ("not_found", 66, False)
    assert server.creates == 2
    assert living(server) == []
    copy = pickle.loads(pickle.dumps(e.value))
    assert (copy.message, copy.code) == (e.value.message, e.value.code)
    assert [type(error) for error in copy.errors] == [type(error) for error in e.value.errors]


def test_a_call_that_had_too_few_can_be_repeated_with_its_key(server: FakeServer):
    server.next_error["createSandbox"] = ("capacity", "no slot left", "slots", True)
    with pytest.raises(CreateManyError) as e:
        Sandbox.create_many(10, "tiny:1", min_ready=10, idempotency_key="k")
    assert e.value.retryable
    assert living(server) == []
    results = Sandbox.create_many(10, "tiny:1", min_ready=10, idempotency_key="k")
    assert {r.unwrap().id for r in results} == set(living(server))
    assert len(living(server)) == 10


def test_a_sandbox_that_has_ended_is_no_success(server: FakeServer):
    first = Sandbox.create_many(3, "tiny:1", idempotency_key="k")
    first[1].unwrap().stop()
    second = Sandbox.create_many(3, "tiny:1", idempotency_key="k")
    assert [r.ok for r in second] == [True, False, True]
    assert isinstance(second[1].error, SandboxFailedError)
    assert second[1].error.object == first[1].unwrap().id


def test_the_time_limit_is_that_of_the_whole_call(server: FakeServer):
    server.create_delay = 0.3
    started = time.monotonic()
    results = Sandbox.create_many(2000, "tiny:1", timeout=1)
    assert time.monotonic() - started < 20
    late = [r for r in results if not r.ok]
    assert late
    assert all(isinstance(r.error, DeadlineExceededError) for r in late)
    assert len(living(server)) >= sum(r.ok for r in results)


def test_a_server_that_is_full_says_so_for_each(server: FakeServer):
    server.next_error["createSandbox"] = ("capacity", "no slot left", "slots", True)
    results = Sandbox.create_many(3, "tiny:1")
    assert [type(r.error) for r in results if not r.ok] == [CapacityError]


def test_cancelling_leaves_nothing(server: FakeServer):
    server.create_delay = 0.1

    async def main():
        async with DSecClient() as client:
            making = asyncio.create_task(AsyncSandbox.create_many(500, "tiny:1", client=client))
            await until(lambda: server.creates > 50)
            making.cancel()
            with pytest.raises(asyncio.CancelledError):
                await making

    asyncio.run(main())
    assert server.creates >= 50
    assert living(server) == []


def test_ctrl_c_leaves_nothing(server: FakeServer):
    import signal

    server.create_delay = 0.1

    def interrupt() -> None:
        eventually(lambda: server.creates >= 50)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        Sandbox.create_many(500, "tiny:1")
    asyncio.run(until(lambda: not living(server)))


def test_a_result_is_typed_by_its_interface(server: FakeServer):
    (result,) = Sandbox.create_many(1, "tiny:1", detached=True)
    assert isinstance(result, CreateResult)
    with result.unwrap() as sb:
        assert isinstance(sb, Sandbox)
    assert living(server) == [sb.id]  # detached

"""The connection: handshake, multiplexing, loss and return, deadlines. Nothing runs twice, nothing
hangs.
"""

from __future__ import annotations

import asyncio
import http
import socket
import time

import pytest

from fake_server import KEY, FakeServer, eventually, fill_error, pattern, until
from libdsec import (
    AsyncSandbox,
    ConflictError,
    DeadlineExceededError,
    DSecClient,
    DSecContainerRunArgs,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    ProtocolError,
    RequestCancelledError,
    UnauthenticatedError,
    UnavailableError,
    UnsupportedError,
    _codec,
    _connection,
    _pool,
    _transport,
)

ARGS = DSecContainerRunArgs(container_image="tiny:1")


def test_the_published_listing(server: FakeServer):
    async def main():
        client = DSecClient()
        await client.open()
        args = DSecContainerRunArgs(
            container_image="tiny:1",
            memory_limit_mb=4096,
            cpu_cores_limit=4,
            ttl_running_stop=300,
            network_rules={"npm": False, "pypi": True},
            init_user="root",
        )
        sandbox = await client.run_container(args, timeout=120)
        result = await sandbox.run_shell("echo hello world")
        await sandbox.stop()
        return sandbox, result

    sandbox, result = asyncio.run(main())
    assert (result.stdout, result.exit_code) == ("hello world\n", 0)
    assert sandbox.warnings == ("pypi has no effect",)
    assert sandbox.phase == "stopped"
    known = server.sandboxes[sandbox.id]
    assert (known["memoryMb"], known["cpuMillis"], known["idle"], known["user"]) == (
        4096, 4000, 300, "root",
    )  # fmt: skip
    assert server.requests[0] == "hello"


def test_a_wrong_key_is_unauthenticated_at_once(server: FakeServer, monkeypatch):
    monkeypatch.setenv("DSEC_API_KEY", "dsec_wrong")
    with pytest.raises(UnauthenticatedError, match="DSEC_API_KEY"):
        asyncio.run(DSecClient().open())


def test_nothing_listening_says_how_to_start():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(UnavailableError, match="scripts/quickstart"):
        asyncio.run(DSecClient(f"127.0.0.1:{port}", KEY).open())


def test_a_connection_to_itself_is_recognised(server: FakeServer):
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        own.connect(own.getsockname())
        assert _transport.is_own(own)
    with socket.create_connection(("127.0.0.1", server.port)) as other:
        assert not _transport.is_own(other)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (http.HTTPStatus.FORBIDDEN, PermissionDeniedError),
        (http.HTTPStatus.SERVICE_UNAVAILABLE, UnavailableError),
        (http.HTTPStatus.NOT_FOUND, ProtocolError),
    ],
)
def test_a_refused_upgrade_is_typed(server: FakeServer, status, error):
    server.status = status
    with pytest.raises(error):
        asyncio.run(DSecClient().open())


def test_something_else_than_websocket_is_a_typed_error():
    async def main():
        async def greet(reader, writer):
            writer.write(b"220 smtp ready\r\n")
            await writer.drain()
            writer.close()

        other = await asyncio.start_server(greet, "127.0.0.1", 0)
        port = other.sockets[0].getsockname()[1]
        async with other:
            await DSecClient(f"127.0.0.1:{port}", KEY).open()

    with pytest.raises((ProtocolError, UnavailableError)):
        asyncio.run(main())


def test_a_server_that_accepts_and_is_silent_is_given_up(monkeypatch):
    monkeypatch.setattr(_pool, "_CONNECT_SECONDS", 0.3)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with pytest.raises((UnavailableError, DeadlineExceededError)):
            asyncio.run(DSecClient(f"127.0.0.1:{silent.getsockname()[1]}", KEY).open())


def test_another_protocol_version_is_unsupported(server: FakeServer):
    server.version = 2
    with pytest.raises(UnsupportedError, match="version 2"):
        asyncio.run(DSecClient().open())


def test_one_connection_carries_many_requests(server: FakeServer):
    async def main():
        async with DSecClient() as client:
            sandbox = await client.run_container(ARGS)
            results = await asyncio.gather(
                *(sandbox.commands.run(["echo", str(i)]) for i in range(1000))
            )
            return [r.stdout for r in results]

    assert asyncio.run(main()) == [f"{i}\n" for i in range(1000)]
    assert server.most_in_flight <= _codec.MAX_IN_FLIGHT


def test_long_commands_leave_room_for_short_requests(server: FakeServer):
    """300 commands wait at once, more than one connection may have in flight, and a kill gets
    through.
    """

    async def main():
        async with DSecClient() as client:
            sandbox = await client.run_container(ARGS)
            waiting = [
                asyncio.create_task(sandbox.commands.run("hang", timeout=60)) for _ in range(300)
            ]
            await until(lambda: len(server.starts) == 300)
            started = time.monotonic()
            for command in await sandbox.commands.list():
                await command.kill()
            seconds = time.monotonic() - started
            return seconds, await asyncio.gather(*waiting)

    seconds, results = asyncio.run(main())
    assert seconds < 30
    assert [r.exit_code for r in results] == [137] * 300
    assert server.connections == 2
    assert server.most_in_flight <= _codec.MAX_IN_FLIGHT


def test_a_command_is_not_run_twice_when_the_reply_is_lost(server: FakeServer):
    server.lose_after["exec"] = 2

    async def main():
        async with DSecClient() as client:
            sandbox = await client.run_container(ARGS)
            return await sandbox.commands.run("echo once")

    assert asyncio.run(main()).stdout == "once\n"
    assert server.requests.count("exec") == 3
    assert len(server.starts) == 1


def test_a_sandbox_is_not_created_twice_when_the_reply_is_lost(server: FakeServer):
    server.lose_after["createSandbox"] = 1
    server.lose_before["createSandbox"] = 1

    async def main():
        async with DSecClient() as client:
            return await client.run_container(ARGS)

    assert asyncio.run(main()).phase == "running"
    assert server.requests.count("createSandbox") == 3
    assert server.creates == 1


def test_everything_in_flight_survives_a_lost_connection(server: FakeServer):
    async def main():
        async with DSecClient() as client:
            sandbox = await client.run_container(ARGS)
            waiting = [
                asyncio.create_task(sandbox.commands.run("hang", timeout=1)) for _ in range(50)
            ]
            await until(lambda: len(server.starts) == 50)
            server.cut()
            return await asyncio.gather(*waiting)

    results = asyncio.run(main())
    assert all(r.timed_out for r in results)
    assert len(server.starts) == 50
    assert server.connections == 2


def test_a_restarted_daemon_is_found_again(server: FakeServer):
    async def main():
        async with DSecClient() as client:
            await client.ping()
            await asyncio.to_thread(server.shut)
            ping = asyncio.create_task(client.ping())
            await asyncio.sleep(0.3)
            assert not ping.done()
            await asyncio.to_thread(server.listen)
            await ping

    asyncio.run(main())


def test_a_daemon_that_stays_away_is_unavailable_at_the_deadline(server: FakeServer):
    async def main():
        async with DSecClient() as client:
            await client.ping()
            await asyncio.to_thread(server.shut)
            patient = asyncio.create_task(client.ping())
            with pytest.raises(UnavailableError, match="not running"):
                await client._request(_codec.void("ping"), "pong", timeout=0.5)
            assert not patient.done()  # another's deadline is not its own
            patient.cancel()
            await asyncio.to_thread(server.listen)
            await client.ping()  # the client is usable again

    asyncio.run(main())


def test_a_request_that_kills_every_connection_is_given_up(server: FakeServer, monkeypatch):
    monkeypatch.setattr(_pool, "_MAX_LOSSES", 6)
    server.lose_before["ping"] = 1000

    async def main():
        async with DSecClient() as client:
            await client.ping()

    with pytest.raises(UnavailableError, match="broke the connection"):
        asyncio.run(main())
    assert server.requests.count("ping") == 6


def test_a_part_of_the_server_that_restarts_is_asked_again(server: FakeServer):
    async def main():
        async with DSecClient() as client:
            server.next_error["ping"] = ("unavailable", "restarting", "", True)
            await client.ping()

    asyncio.run(main())
    assert server.requests.count("ping") == 2


def test_a_part_of_the_server_that_does_not_come_back_is_unavailable(server: FakeServer):
    async def refuse(reply, body, request):
        fill_error(reply, "unavailable", "restarting", "", True)

    server._do_ping = refuse

    async def main():
        async with DSecClient() as client:
            with pytest.raises(UnavailableError, match="restarting"):
                await client.ping()
            count = server.requests.count("ping")
            started = time.monotonic()
            with pytest.raises(UnavailableError, match="restarting"):
                await client._request(_codec.void("ping"), "pong", timeout=0.2)
            assert time.monotonic() - started < 3
            return count

    assert asyncio.run(main()) == _pool._MAX_REFUSALS


def test_one_request_survives_ten_restarts(server: FakeServer):
    async def main():
        async with DSecClient() as client:
            sandbox = await client.run_container(ARGS)
            running = asyncio.create_task(sandbox.commands.run("hang", timeout=50))
            await until(lambda: server.starts)
            for _ in range(10):
                waits = server.requests.count("exec")
                await asyncio.to_thread(server.restart)
                await until(lambda: server.requests.count("exec") > waits)  # noqa: B023
            await sandbox.commands._kill_quietly(server.starts[0])
            return await running

    assert asyncio.run(main()).exit_code == 137
    assert len(server.starts) == 1


def test_all_kinds_of_requests_survive_restarts(server: FakeServer):
    """Creations, commands, their output, large files and lists, while the daemon is killed and
    started again and again: nothing is done twice, nothing is lost.
    """
    data = pattern(30_000_000)
    server.output_piece = 1 << 16

    async def life(client: DSecClient, i: int) -> None:
        sandbox = await client.run_container(ARGS)
        for round_ in range(5):
            text = f"{i}.{round_}"
            assert (await sandbox.commands.run(["echo", text])).stdout == f"{text}\n"
            command = await sandbox.commands.start("out 1000000")
            got = b"".join([piece async for _, piece in command.stream()])
            assert got == pattern(1_000_000)
            assert sandbox.id in [s.id for s in await client.list_sandboxes()]
        await sandbox.files.write(f"/{i}", data)
        assert await sandbox.files.read(f"/{i}") == data

    async def main():
        async with DSecClient() as client:
            lives = [asyncio.create_task(life(client, i)) for i in range(4)]
            restarts = 0
            while not all(task.done() for task in lives):
                await asyncio.sleep(0.1)
                await asyncio.to_thread(server.restart)
                restarts += 1
            await asyncio.gather(*lives)
            return restarts

    assert asyncio.run(main()) >= 3
    assert server.creates == 4
    assert len(server.starts) == len(set(server.starts)) == 4 * 5 * 2
    assert server.writes == 4 * 4  # pieces of 8 MiB


def test_every_connection_of_a_client_has_its_one_lease(server: FakeServer):
    async def main():
        async with DSecClient(lease_seconds=2.5) as client, DSecClient() as other:
            await asyncio.to_thread(server.restart)
            await client.ping()
            await other.ping()

    asyncio.run(main())
    mine, others, *again = server.leases
    assert mine[1] == 2500
    assert others[1] == 0  # the server's default
    assert len(mine[0]) == 32
    assert mine[0] != others[0]
    assert sorted(again) == sorted([mine, others])


@pytest.mark.parametrize("detached", [False, True])
def test_a_client_that_asks_for_nothing_comes_back_for_its_lease(
    server: FakeServer, detached: bool
):
    async def main():
        async with DSecClient() as client:
            await AsyncSandbox.create("tiny:1", detached=detached, client=client)
            for restarts in (1, 2):
                await asyncio.to_thread(server.shut)
                await asyncio.to_thread(server.cut)
                await asyncio.sleep(0.3)
                await asyncio.to_thread(server.listen)
                if not detached:
                    await until(lambda: len(server.leases) == 1 + restarts)  # noqa: B023
            assert len(set(server.leases)) == 1
        await asyncio.sleep(0.2)

    asyncio.run(main())
    assert server.connections == (1 if detached else 3)


@pytest.mark.parametrize("seconds", [0, -1, 5_000_000])
def test_a_lease_that_cannot_be_is_refused(seconds):
    with pytest.raises(InvalidArgumentError, match="lease_seconds"):
        DSecClient(lease_seconds=seconds)


def test_a_detached_sandbox_is_left_running(server: FakeServer):
    async def main():
        async with DSecClient() as client:
            async with await AsyncSandbox.create("tiny:1", detached=True, client=client) as kept:
                assert kept._info.detached
            async with await AsyncSandbox.create("tiny:1", client=client) as mine:
                assert not mine._info.detached
            async with await AsyncSandbox.create("tiny:1", client=client) as changed:
                assert (await changed.detach()).detached
            return [s.id for s in await client.list_sandboxes() if s.alive], [kept.id, changed.id]

    living, detached = asyncio.run(main())
    assert living == detached


def test_a_deadline_bounds_the_wait_for_a_reconnect(server: FakeServer):
    async def main():
        async with DSecClient() as client:
            await client.ping()
            await asyncio.to_thread(server.shut)
            started = time.monotonic()
            with pytest.raises((DeadlineExceededError, UnavailableError)):
                await client._request(_codec.void("ping"), "pong", timeout=0.3)
            assert time.monotonic() - started < 3
            await asyncio.to_thread(server.listen)

    asyncio.run(main())


def test_a_server_that_does_not_answer_is_a_deadline_error(server: FakeServer, monkeypatch):
    monkeypatch.setattr(_connection, "_GRACE_SECONDS", 0.2)

    async def main():
        async with DSecClient() as client:
            sandbox = await client.run_container(ARGS)
            late = sandbox.commands._exec("c", ["late"], None, None, None, b"", None, 0, wait=False)
            with pytest.raises(DeadlineExceededError, match="no answer"):
                await client._request(late, "command", timeout=0.2)
            await client.ping()  # the connection goes on

    asyncio.run(main())


def test_the_server_is_told_the_deadline(server: FakeServer):
    async def main():
        async with DSecClient() as client:
            sandbox = await client.run_container(ARGS)
            fill = sandbox.commands._exec("c", ["hang"], None, None, None, b"", None, 0, wait=True)
            with pytest.raises(DeadlineExceededError, match="still running"):
                await client._request(fill, "command", timeout=0.2)

    asyncio.run(main())


def test_a_malformed_reply_costs_the_connection_not_the_request(server: FakeServer):
    server.rubbish["ping"] = b"\xff" * 64

    async def main():
        async with DSecClient() as client:
            await client.ping()

    asyncio.run(main())
    assert server.requests.count("ping") == 2
    assert server.connections == 2


def test_a_reply_of_the_wrong_kind_is_a_protocol_error(server: FakeServer):
    async def main():
        async with DSecClient() as client:
            with pytest.raises(ProtocolError, match="pong"):
                await client._request(_codec.void("ping"), "sandbox")

    asyncio.run(main())


def test_a_request_the_server_does_not_know_is_unsupported(server: FakeServer, monkeypatch):
    monkeypatch.delattr(FakeServer, "_do_listImages")

    async def main():
        async with DSecClient() as client:
            await client.list_images()

    with pytest.raises(UnsupportedError):
        asyncio.run(main())


def test_closing_ends_what_waits(server: FakeServer):
    async def main():
        client = DSecClient()
        await client.open()
        sandbox = await client.run_container(ARGS)
        waiting = asyncio.create_task(sandbox.commands.run("hang", timeout=60))
        await until(lambda: server.starts)
        await client.close()
        await client.close()
        with pytest.raises((RequestCancelledError, RuntimeError)):
            await waiting

    asyncio.run(main())


def test_a_client_can_be_opened_again(server: FakeServer):
    async def main():
        client = DSecClient()
        for _ in range(2):
            await client.open()
            await client.open()
            await client.ping()
            await client.close()

    asyncio.run(main())
    assert server.connections == 2


def test_a_client_that_is_not_open_says_so():
    async def main():
        await DSecClient("h:1", KEY).ping()

    with pytest.raises(RuntimeError, match="open"):
        asyncio.run(main())


def test_the_end_of_the_event_loop_closes_what_was_left_open(server: FakeServer):
    async def main():
        await AsyncSandbox.create("tiny:1")
        client = DSecClient()
        await client.open()
        assert server.connections == 2

    asyncio.run(main())
    assert eventually(lambda: not server._open, 5)


def test_the_same_key_gives_the_same_sandbox_and_another_body_conflicts(server: FakeServer):
    async def main():
        async with DSecClient() as client:
            first = await client.run_container(ARGS, idempotency_key="k")
            second = await client.run_container(ARGS, idempotency_key="k")
            assert first.id == second.id
            other = DSecContainerRunArgs(container_image="other:1")
            with pytest.raises(ConflictError):
                await client.run_container(other, idempotency_key="k")

    asyncio.run(main())
    assert server.creates == 1


def test_cancelling_a_creation_leaves_no_sandbox(server: FakeServer):
    server.create_delay = 0.2

    async def main():
        async with DSecClient() as client:
            creation = asyncio.create_task(client.run_container(ARGS))
            await until(lambda: "createSandbox" in server.requests)
            creation.cancel()
            with pytest.raises(asyncio.CancelledError):
                await creation

    asyncio.run(main())
    assert all(s["phase"] == "stopped" for s in server.sandboxes.values())


def test_a_creation_that_was_given_up_is_withdrawn(server: FakeServer, monkeypatch):
    monkeypatch.setattr(_connection, "_GRACE_SECONDS", 0.1)
    server.create_delay = 1

    async def main():
        async with DSecClient() as client:
            with pytest.raises(DeadlineExceededError):
                await client.run_container(ARGS, timeout=0.2)
            await until(lambda: server.refused_late)

    asyncio.run(main())
    assert server.creates == 0


def test_a_creation_whose_answers_were_all_lost_is_withdrawn(server: FakeServer):
    server.lose_after["createSandbox"] = 1000

    async def main():
        async with DSecClient() as client:
            with pytest.raises((DeadlineExceededError, UnavailableError)):
                await client.run_container(ARGS, timeout=0.5)
            await until(lambda: [s["phase"] for s in server.sandboxes.values()] == ["stopped"])

    asyncio.run(main())
    assert server.creates == 1


def test_a_creation_with_a_key_of_the_callers_is_not_withdrawn(server: FakeServer):
    server.lose_after["createSandbox"] = 1000

    async def main():
        async with DSecClient() as client:
            with pytest.raises((DeadlineExceededError, UnavailableError)):
                await client.run_container(ARGS, timeout=0.5, idempotency_key="k")
            server.lose_after.clear()
            await client.run_container(ARGS, idempotency_key="k")

    asyncio.run(main())
    assert "stopSandbox" not in server.requests
    assert server.creates == 1


def test_big_messages_arrive_whole_in_both_directions(server: FakeServer):
    async def main():
        async with DSecClient() as client:
            sandbox = await client.run_container(ARGS)
            data = pattern(8 << 20)
            result = await sandbox.commands.run(["cat"], stdin=data)
            assert result.stdout_bytes == data

    asyncio.run(main())


def test_errors_of_the_server_arrive_typed(server: FakeServer):
    async def main():
        async with DSecClient() as client:
            with pytest.raises(NotFoundError) as caught:
                await client.connect("e0-none")
            assert caught.value.object == "e0-none"
            server.next_error["createSandbox"] = ("capacity", "no memory left", "memory", True)
            with pytest.raises(Exception, match="memory") as caught:
                await client.run_container(ARGS)
            assert caught.value.code == "capacity"
            assert caught.value.retryable

    asyncio.run(main())

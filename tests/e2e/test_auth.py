"""Keys, tickets, and what SIGHUP reloads."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from typing import Any

import pytest
from conftest import TINY
from daemon import Daemon, binary
from host import eventually
from strangers import ask, hear, join, key_of, say
from websockets.exceptions import ConnectionClosed, InvalidStatus

from libdsec import (
    DSecClient,
    DSecContainerRunArgs,
    NotFoundError,
    ProtocolError,
    Sandbox,
    UnauthenticatedError,
)


def make_key(daemon: Daemon, principal: str) -> tuple[str, str]:
    """Key and id."""
    said = daemon.dsecd("key", "create", "--principal", principal)
    key, told = said.splitlines()
    return key, told.split()[1]


def events(daemon: Daemon, name: str) -> list[dict]:
    lines = (json.loads(line) for line in daemon.log.read_text().splitlines() if line[:1] == "{")
    return [line for line in lines if line["event"] == name]


def reload(daemon: Daemon) -> None:
    """SIGHUP, taken over or not."""
    count = len(events(daemon, "reloaded")) + len(events(daemon, "reload_failed"))
    os.kill(daemon.pid, signal.SIGHUP)
    assert eventually(
        lambda: len(events(daemon, "reloaded")) + len(events(daemon, "reload_failed")) > count
    ), daemon.tail()


# ---- keys


def test_a_key_is_its_principals_and_only_its_hash_is_kept(daemon: Daemon, run_async):
    key, id = make_key(daemon, "alice")
    with Sandbox.create(TINY, memory_mb=32) as roots:

        async def as_alice() -> None:
            async with DSecClient(api_key=key) as client:
                args = DSecContainerRunArgs(container_image=TINY)
                async with await client.run_container(args) as own:
                    assert [s.id for s in await client.list_sandboxes()] == [own.id]
                    with pytest.raises(NotFoundError):
                        await client.connect(roots.id)

        assert eventually(lambda: joins(daemon, key))
        run_async(as_alice())
    for file in daemon.state.glob("keys.db*"):
        assert key.removeprefix("dsec_").encode() not in file.read_bytes()
    listed = daemon.dsecd("key", "ls")
    assert re.search(rf"^{id} +alice ", listed, re.MULTILINE)
    assert re.search(r"^local-[0-9a-f]{8} +root ", listed, re.MULTILINE)
    assert key not in listed
    daemon.dsecd("key", "revoke", id)


@pytest.mark.parametrize("where", ["a full disk", "a closed pipe"])
def test_a_key_that_nobody_was_shown_is_not_left_good(daemon: Daemon, where: str):
    before = set(re.findall(r"^k-\w+", daemon.dsecd("key", "ls"), re.MULTILINE))
    if where == "a full disk":
        out = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, out = os.pipe()
        os.close(reader)
    done = subprocess.run(
        [binary(), "key", "create", "--principal", "nobody", "--state", daemon.state],
        stdout=out, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    os.close(out)
    assert done.returncode == 74, done.stderr
    (made,) = set(re.findall(r"^k-\w+", daemon.dsecd("key", "ls"), re.MULTILINE)) - before
    assert f"key {made} is revoked again" in done.stderr
    (line,) = re.findall(rf"^{made} .*", daemon.dsecd("key", "ls"), re.MULTILINE)
    assert line.split()[3] != "-"  # when it was revoked


def test_a_wrong_key_is_typed_and_names_the_remedy(daemon: Daemon, run_async):
    async def enter() -> None:
        async with DSecClient(api_key="dsec_wrong"):
            pass

    with pytest.raises(UnauthenticatedError, match="DSEC_API_KEY"):
        run_async(enter())


def test_a_revoked_key_ends_its_connections_mid_stream(daemon: Daemon):
    key, id = make_key(daemon, "carol")
    assert eventually(lambda: joins(daemon, key))
    with join(daemon, key, ("streams",)) as wire, join(daemon, key_of(daemon)) as other:
        made = ask(wire, 2, createSandbox={"image": TINY, "memoryMb": 32})["sandbox"]
        box = made["sandboxId"]
        say(wire, 3, exec={"sandboxId": box, "commandId": "c", "shell": "echo begun; sleep 60", "wait": True})
        source = {"output": {"sandboxId": box, "commandId": "c"}}
        assert "stream" in ask(wire, 4, openStream={"streamId": 1, "credit": 99, "source": source})
        assert hear(wire)[1]["streamData"]["data"] == base64.b64encode(b"begun\n").decode()
        daemon.dsecd("key", "revoke", id)
        began = time.monotonic()
        answered, body = hear(wire)
        assert (answered, body["error"]["code"]) == (3, "unauthenticated")
        answered, body = hear(wire)
        assert (answered, body["streamData"]["error"]["code"]) == (0, "unauthenticated")
        with pytest.raises(ConnectionClosed) as closed:
            wire.recv(5)
        assert time.monotonic() - began < 5  # five times what is promised
        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (
            4401,
            "this API key was revoked",
        )
        assert not joins(daemon, key)
        assert ask(other, 2, ping=None) == {"pong": None}
    # Its sandboxes go on until their lease is over; another key of the principal finds them.
    key, id = make_key(daemon, "carol")
    assert eventually(lambda: joins(daemon, key))
    with join(daemon, key) as wire:
        assert ask(wire, 2, stopSandbox={"sandboxId": box})["sandbox"]["phase"] == "stopped"
    daemon.dsecd("key", "revoke", id)


def enter(daemon: Daemon, key: str | None = None, **options: Any) -> None:
    with join(daemon, key, **options):
        pass


def joins(daemon: Daemon, key: str) -> bool:
    try:
        enter(daemon, key)
    except InvalidStatus as refusal:
        assert refusal.response.status_code == 401
        return False
    return True


def test_key_errors_are_typed(daemon: Daemon, tmp_path):
    assert "k-none" in daemon.dsecd("key", "revoke", "k-none", code=66)
    assert "principal" in daemon.dsecd("key", "create", "--principal", "not good", code=64)
    local = re.search(r"local-\w+", daemon.dsecd("key", "ls"))
    assert local
    assert "SIGHUP" in daemon.dsecd("key", "revoke", local[0], code=64)
    done = subprocess.run(
        [binary(), "key", "ls", "--state", tmp_path / "none"], capture_output=True, text=True
    )
    assert done.returncode == 66
    assert str(tmp_path / "none") in done.stderr


# ---- tickets


def ticket(daemon: Daemon, key: str) -> str:
    url = (daemon.state / "url").read_text().strip().replace("ws://", "http://")
    request = urllib.request.Request(
        f"{url}/v1/ticket", method="POST", headers={"Authorization": f"Bearer {key}"}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        body = json.load(answer)
    assert body["expiresInSeconds"] == 30
    return str(body["ticket"])


def test_a_ticket_opens_one_connection_without_headers(daemon: Daemon):
    once = f"dsec.ticket.{ticket(daemon, key_of(daemon))}"
    origin = (daemon.state / "url").read_text().strip().replace("ws://", "http://")
    with join(daemon, subprotocols=["dsec", once], origin=origin) as wire:
        assert wire.subprotocol == "dsec"
        assert ask(wire, 2, ping=None) == {"pong": None}
    for offer in (once, "dsec.ticket.unknown"):
        with pytest.raises(InvalidStatus) as refused:
            enter(daemon, subprotocols=["dsec", offer])
        assert refused.value.response.status_code == 401
        assert b"unauthenticated" in refused.value.response.body
    with pytest.raises(InvalidStatus) as refused:
        enter(daemon, subprotocols=["dsec", once], origin="http://evil.example")
    assert refused.value.response.status_code == 403
    with pytest.raises(urllib.error.HTTPError) as unknown:
        ticket(daemon, "dsec_wrong")
    assert unknown.value.code == 401


# ---- SIGHUP


def test_sighup_takes_over_what_may_change_and_names_what_may_not(own: Daemon):
    with Sandbox.create(TINY, memory_mb=32) as sb, join(own, key_of(own)) as wire:
        own.config.write_text(
            'log_level = "debug"\n[gateway]\nmax_connections = 1\n[node]\nslot_pool = 3\n'
        )
        reload(own)
        assert {e["key"] for e in events(own, "config_changed")} == {
            "log_level",
            "gateway.max_connections",
        }
        assert [e["key"] for e in events(own, "config_needs_restart")] == ["node.slot_pool"]
        assert sb.commands.run("echo on").stdout == "on\n"
        assert events(own, "request")  # debug
        with pytest.raises(InvalidStatus) as full:
            enter(own, key_of(own))
        assert full.value.response.status_code == 503
        own.config.write_text("[gateway]\n")
        reload(own)
        enter(own, key_of(own))
        assert ask(wire, 2, ping=None) == {"pong": None}


@pytest.mark.parametrize("bad", ["rubbish", "directory", "missing"])
def test_a_bad_file_changes_nothing(own: Daemon, bad: str):
    own.config.unlink()
    if bad == "rubbish":
        own.config.write_text("log_level = 'debug'\n[gateway]\nprot = 1\n")
    elif bad == "directory":
        own.config.mkdir()
    reload(own)
    (failed,) = events(own, "reload_failed")
    assert str(own.config) in failed["why"]
    if bad == "rubbish":
        assert "gateway.port" in failed["why"]
    if bad == "directory":
        done = subprocess.run(
            [binary(), "serve", "--config", own.config], capture_output=True, text=True
        )
        assert done.returncode == 64
        assert "is a directory" in done.stderr
        own.config.rmdir()
    own.config.write_text("")
    assert Sandbox.list() == []
    assert not events(own, "request")


def test_another_key_file_ends_what_came_in_with_the_old_one(own: Daemon):
    old = key_of(own)
    with join(own, old) as wire:
        (own.state / "api-key").unlink()
        reload(own)
        with pytest.raises(ConnectionClosed) as closed:
            wire.recv(5)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4401
    assert key_of(own) != old
    assert not joins(own, old)
    assert joins(own, key_of(own))


# ---- bad input


def test_a_port_in_use_is_named_with_who_to_ask(own: Daemon):
    own.stop()
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", own.port))
        taken.listen()
        with pytest.raises(AssertionError, match="dsecd ended with 74") as failed:
            own.start()
    assert f"cannot listen on 127.0.0.1:{own.port}" in str(failed.value)
    assert f"ss -ltnp sport = :{own.port}" in str(failed.value)
    own.start()


def test_tls_to_a_port_without_it_is_named(daemon: Daemon, run_async):
    async def enter() -> None:
        async with DSecClient(f"wss://127.0.0.1:{daemon.port}"):
            pass

    with pytest.raises(ProtocolError, match=f" ws://127.0.0.1:{daemon.port}"):
        run_async(enter())


def test_without_tls_other_hosts_are_refused(tmp_path):
    done = subprocess.run(
        [binary(), "serve", "--state", tmp_path / "state", "--bind", "0.0.0.0"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 64
    assert "gateway.tls_cert" in done.stderr
    assert "gateway.allow_plaintext" in done.stderr
    assert not (tmp_path / "state").exists()

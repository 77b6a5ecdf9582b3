"""TLS at the door: who gets in, and what is said to those who do not."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import Authority
from conftest import TINY, serve
from daemon import Daemon
from host import eventually
from strangers import ask, join, key_of

from libdsec import (
    DSecClient,
    DSecError,
    InvalidArgumentError,
    ProtocolError,
    Sandbox,
    UnauthenticatedError,
)


class Secure:
    """A daemon with TLS, and the authority that its clients trust."""

    def __init__(self, daemon: Daemon, directory: Path):
        self.daemon = daemon
        self.authority = Authority.make(directory)
        self.certificate, self.key = directory / "server.pem", directory / "server.key"
        self.authority.issue(self.certificate, self.key)
        daemon.config.write_text(
            f'[gateway]\ntls_cert = "{self.certificate}"\ntls_key = "{self.key}"\n'
        )

    def shown(self) -> bytes:
        """The certificate that a new connection gets."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with socket.create_connection(("127.0.0.1", self.daemon.port), 10) as sock:
            with context.wrap_socket(sock) as tls:
                shown = tls.getpeercert(binary_form=True)
        assert shown is not None
        return shown

    def reload(self) -> None:
        """Certificate and key are those in the files now."""
        pem = self.certificate.read_text()
        os.kill(self.daemon.pid, signal.SIGHUP)
        assert eventually(lambda: ssl.DER_cert_to_PEM_cert(self.shown()) == pem), (
            self.daemon.tail()
        )


@pytest.fixture(scope="module")
def secure(
    tiny_tree: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secure]:
    made: list[Secure] = []

    def prepare(daemon: Daemon) -> None:
        daemon.image_import(TINY, tiny_tree, "base")
        made.append(Secure(daemon, tmp_path_factory.mktemp("tls")))
        os.environ["DSEC_CA"] = str(made[0].authority.file)

    try:
        for _ in serve("tls", prepare):
            yield made[0]
    finally:
        os.environ.pop("DSEC_CA", None)


@pytest.fixture(autouse=True)
def _good_certificate(secure: Secure) -> Iterator[None]:
    yield
    secure.authority.issue(secure.certificate, secure.key)
    secure.reload()


def error_of(url: str | None = None, ca: Path | None = None) -> DSecError:
    """What a client that connects is told."""

    async def enter() -> None:
        async with DSecClient(url, ca=ca):
            pass

    with pytest.raises(DSecError) as caught:
        asyncio.run(asyncio.wait_for(enter(), 30))
    return caught.value


def test_everything_works_over_tls(secure: Secure):
    assert (secure.daemon.state / "url").read_text().startswith("wss://127.0.0.1:")
    with Sandbox.create(TINY, memory_mb=32) as sb:
        assert sb.commands.run("echo over tls").stdout == "over tls\n"
        data = os.urandom(3 << 20)
        sb.files.write("/root/data", data)
        assert sb.files.read("/root/data") == data


def test_a_stranger_gets_in_with_its_own_tls(secure: Secure):
    trust = ssl.create_default_context(cafile=secure.authority.file)
    with join(secure.daemon, key_of(secure.daemon), ssl=trust) as wire:
        assert ask(wire, 2, ping=None) == {"pong": None}
        wire.close()
        assert wire.close_code == 1000


def test_an_expired_certificate_is_named(secure: Secure):
    secure.authority.issue(secure.certificate, secure.key, days=-1)
    secure.reload()
    error = error_of()
    assert isinstance(error, UnauthenticatedError)
    assert "expired" in error.message
    assert '"event":"certificate_expired"' in secure.daemon.log.read_text()


@pytest.mark.parametrize("names", ["DNS:elsewhere.example", "IP:10.9.8.7"])
def test_a_certificate_for_another_name_is_named(secure: Secure, names: str):
    secure.authority.issue(secure.certificate, secure.key, names)
    secure.reload()
    error = error_of()
    assert isinstance(error, UnauthenticatedError)
    assert "another name" in error.message
    assert "127.0.0.1" in error.message


def test_an_unknown_authority_is_named(secure: Secure, tmp_path: Path):
    other = Authority.make(tmp_path / "other")
    error = error_of(ca=other.file)
    assert isinstance(error, UnauthenticatedError)
    assert "DSEC_CA" in error.message


@pytest.mark.parametrize("what", ["missing", "rubbish"])
def test_a_ca_file_that_is_none_is_named(secure: Secure, tmp_path: Path, what: str):
    file = tmp_path / "ca.pem"
    if what == "rubbish":
        file.write_text("no certificate")
    error = error_of(ca=file)
    assert isinstance(error, InvalidArgumentError)
    assert str(file) in error.message


def test_plaintext_to_a_port_with_tls(secure: Secure):
    error = error_of(f"ws://127.0.0.1:{secure.daemon.port}")
    assert isinstance(error, ProtocolError)
    assert f"wss://127.0.0.1:{secure.daemon.port}" in error.message


@pytest.mark.parametrize(("version", "good"), [("-tls1_1", False), ("-tls1_2", True)])
def test_tls_1_1_is_refused(secure: Secure, version: str, good: bool):
    done = subprocess.run(
        [
            "openssl", "s_client", "-connect", f"127.0.0.1:{secure.daemon.port}", version,
            "-cipher", "DEFAULT:@SECLEVEL=0", "-CAfile", secure.authority.file,
        ],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert (done.returncode == 0) is good, done.stdout + done.stderr
    if not good:
        assert "alert protocol version" in done.stderr


def test_a_new_certificate_leaves_connections_alone(secure: Secure):
    before = secure.shown()
    with Sandbox.create(TINY, memory_mb=32) as sb:
        trust = ssl.create_default_context(cafile=secure.authority.file)
        with join(secure.daemon, key_of(secure.daemon), ssl=trust) as wire:
            secure.authority.issue(secure.certificate, secure.key)
            secure.reload()
            assert secure.shown() != before
            assert ask(wire, 2, ping=None) == {"pong": None}
        assert sb.commands.run("echo still").stdout == "still\n"


def test_a_bad_certificate_is_not_taken(secure: Secure):
    before, good = secure.shown(), secure.certificate.read_bytes()
    secure.certificate.write_text("rubbish")
    os.kill(secure.daemon.pid, signal.SIGHUP)
    assert eventually(lambda: "reload_failed" in secure.daemon.log.read_text())
    assert str(secure.certificate) in secure.daemon.tail()
    assert secure.shown() == before
    secure.certificate.write_bytes(good)


def test_a_bad_certificate_leaves_the_api_key_as_it_was(secure: Secure):
    """What is reloaded is reloaded together: nobody is told a key that the daemon does not take."""
    file, good = secure.daemon.state / "api-key", secure.certificate.read_bytes()
    key, failed = file.read_text(), secure.daemon.log.read_text().count("reload_failed")
    trust = ssl.create_default_context(cafile=secure.authority.file)
    with join(secure.daemon, key.strip(), ssl=trust) as wire:
        file.unlink()
        secure.certificate.write_text("rubbish")
        os.kill(secure.daemon.pid, signal.SIGHUP)
        assert eventually(lambda: secure.daemon.log.read_text().count("reload_failed") > failed)
        made = file.exists()
        file.touch(0o600)
        file.write_text(key)
        secure.certificate.write_bytes(good)
        assert not made
        assert ask(wire, 2, ping=None) == {"pong": None}


def test_names_of_the_certificate_are_hosts_and_others_are_not(secure: Secure):
    secure.authority.issue(secure.certificate, secure.key, "DNS:gate.example,IP:127.0.0.1")
    secure.reload()
    trust = ssl.create_default_context(cafile=secure.authority.file)
    trust.check_hostname = False

    def status(host: str) -> str:
        port = secure.daemon.port
        with socket.create_connection(("127.0.0.1", port), 10) as sock:
            with trust.wrap_socket(sock) as tls:
                request = f"GET /healthz HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n"
                tls.sendall(request.encode())
                return tls.recv(12).decode().split()[1]

    assert status("gate.example") == "200"
    assert status("evil.example") == "403"

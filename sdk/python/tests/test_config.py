"""Where the daemon is looked for, and what is said when it is not there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from libdsec import _config
from libdsec.errors import InvalidArgumentError, PermissionDeniedError, UnavailableError


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "url").write_text("http://127.0.0.1:7171\n")
    (tmp_path / "api-key").write_text("dsec_fromfile\n")
    for name in ("DSEC_URL", "DSEC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DSEC_STATE", str(tmp_path))
    return tmp_path


def test_the_state_directory_tells_address_and_key(state):
    assert _config.resolve() == _config.Endpoint("ws://127.0.0.1:7171/v1/ws", "dsec_fromfile")


def test_the_environment_outranks_the_state_directory(state, monkeypatch):
    monkeypatch.setenv("DSEC_URL", "ws://h:1")
    monkeypatch.setenv("DSEC_API_KEY", "dsec_env")
    assert _config.resolve() == _config.Endpoint("ws://h:1/v1/ws", "dsec_env")


def test_arguments_outrank_the_environment(state, monkeypatch):
    monkeypatch.setenv("DSEC_URL", "ws://h:1")
    assert _config.resolve("http://other:2", "k") == _config.Endpoint("ws://other:2/v1/ws", "k")
    assert _config.resolve(state=state).url == "ws://127.0.0.1:7171/v1/ws"


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("127.0.0.1:7070", "ws://127.0.0.1:7070/v1/ws"),
        ("http://127.0.0.1:7070/", "ws://127.0.0.1:7070/v1/ws"),
        ("https://[::1]:7070", "wss://[::1]:7070/v1/ws"),
        ("ws://host/elsewhere", "ws://host/elsewhere"),
    ],
)
def test_addresses_are_completed(given, used):
    assert _config.websocket_url(given) == used


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("url", 7070),
        ("url", b"http://h:1"),
        ("url", Path("h")),
        ("api_key", b"dsec_k"),
        ("api_key", 1),
        ("state", 1),
        ("state", b"/var/lib/dsec"),
        ("state", ["/var/lib/dsec"]),
        ("state", "/var/lib\0/dsec"),
        ("ca", 1.5),
        ("ca", b"/ca.pem"),
        ("ca", "/ca\0.pem"),
    ],
)
def test_arguments_of_the_wrong_type_are_refused_by_name(state, name, given):
    with pytest.raises(InvalidArgumentError, match=f"^{name} "):
        _config.resolve(**{name: given})


@pytest.mark.parametrize("given", ["ftp://h:1", "http://", "ws://h:port", "ws://h:99999"])
def test_what_is_no_address_is_refused(given):
    with pytest.raises(InvalidArgumentError):
        _config.websocket_url(given)


def test_a_missing_daemon_says_how_to_start_one(tmp_path, monkeypatch):
    monkeypatch.delenv("DSEC_URL", raising=False)
    monkeypatch.setenv("DSEC_STATE", str(tmp_path / "none"))
    with pytest.raises(UnavailableError) as caught:
        _config.resolve()
    assert str(tmp_path / "none" / "url") in caught.value.message
    assert "scripts/quickstart" in caught.value.message
    assert "DSEC_URL" in caught.value.message


def test_an_unreadable_key_says_whose_it_is(state, monkeypatch):
    def refuse(self: Path, **_: object) -> str:
        raise PermissionError(13, os.strerror(13))

    monkeypatch.setenv("DSEC_URL", "ws://h:1")
    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(PermissionDeniedError, match="owner only"):
        _config.resolve()


def test_a_key_with_a_line_break_cannot_forge_a_header(state, monkeypatch):
    monkeypatch.setenv("DSEC_API_KEY", "a\r\nHost: evil")
    with pytest.raises(InvalidArgumentError):
        _config.resolve()


def test_the_key_is_not_shown():
    assert "secret" not in repr(_config.Endpoint("ws://h", "secret"))


def test_ca_comes_from_the_call_or_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DSEC_URL", "wss://h:1")
    monkeypatch.setenv("DSEC_API_KEY", "k")
    monkeypatch.delenv("DSEC_CA", raising=False)
    assert _config.resolve().ca is None
    monkeypatch.setenv("DSEC_CA", "/env.pem")
    assert _config.resolve().ca == "/env.pem"
    assert _config.resolve(ca=Path("/call.pem")).ca == "/call.pem"

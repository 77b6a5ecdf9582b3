"""Fixtures: a fake daemon per test, and an alarm that ends a test which hangs."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from fake_server import KEY, FakeServer
from libdsec._loop import loop_thread

TEST_SECONDS = 60


def pytest_sessionstart() -> None:
    # A shell's background jobs ignore Ctrl-C, and so would what is started here.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _alarm() -> Iterator[None]:
    def hung(*_: object) -> None:
        raise TimeoutError(f"the test took longer than {TEST_SECONDS} s")

    previous = signal.signal(signal.SIGALRM, hung)
    signal.alarm(TEST_SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, previous)


@pytest.fixture
def _long() -> None:
    """For tests that build and install: five more minutes."""
    signal.alarm(TEST_SECONDS + 300)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    """A fake daemon, found through the environment as a real one is."""
    with FakeServer() as fake:
        monkeypatch.setenv("DSEC_URL", fake.url)
        monkeypatch.setenv("DSEC_API_KEY", KEY)
        yield fake
        loop_thread.close()

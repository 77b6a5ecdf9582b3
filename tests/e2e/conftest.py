"""Fixtures of the end-to-end tests: a daemon per module with a tiny image, sandboxes in it, a leak
check after it.

`DSEC_E2E_ARRANGEMENT=cluster` runs all of them against a coordinator and two workers instead; what
is about one process is skipped, and says so.

`DSEC_TEST_FULL=1` gives the counts and times of the cases, else a tenth. A test that needs an image
which only scripts/quickstart makes skips, and says so.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import images
import pytest
from cluster import Cluster
from daemon import Daemon, binary, leak_check
from host import eventually
from images import TINY

from libdsec import Sandbox
from libdsec._loop import loop_thread

FULL = os.environ.get("DSEC_TEST_FULL") == "1"
TEST_SECONDS = 600 if FULL else 120
ARRANGEMENT = os.environ.get("DSEC_E2E_ARRANGEMENT", "all")


def pytest_configure(config: pytest.Config) -> None:
    for case in range(1, 34):
        config.addinivalue_line("markers", f"C{case}: case C{case} of what breaks for users")
    for threat in range(1, 20):
        config.addinivalue_line("markers", f"threat_{threat}: attack {threat}, see tests/README.md")


def pytest_sessionstart(session: pytest.Session) -> None:
    # A shell's background jobs ignore Ctrl-C, and so would what is started here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if ARRANGEMENT not in ("all", "cluster"):
        pytest.exit("DSEC_E2E_ARRANGEMENT must be all or cluster", 1)
    if os.geteuid() != 0:
        pytest.exit("the end-to-end tests make sandboxes: run them as root", 1)
    if not binary().is_file():
        pytest.exit(f"no dsecd at {binary()}: build it, or set DSECD", 1)
    if not leak_check().is_file():
        pytest.exit(f"no {leak_check()}: build leak_check_program beside dsecd", 1)


@pytest.fixture(autouse=True)
def _alarm() -> Iterator[None]:
    """A test that hangs fails; its sandboxes go with the daemon."""

    def hung(*_: object) -> None:
        raise TimeoutError(f"the test took longer than {TEST_SECONDS} s")

    previous = signal.signal(signal.SIGALRM, hung)
    signal.alarm(TEST_SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, previous)


@pytest.fixture(scope="session")
def tiny_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not images.BUSYBOX.exists():
        pytest.skip(f"no {images.BUSYBOX}: install busybox-static")
    return images.build_tiny(tmp_path_factory.mktemp("tiny"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A module that is about one process says why in `ONE_PROCESS`."""
    if ARRANGEMENT != "cluster":
        return
    for item in items:
        why = getattr(getattr(item, "module", None), "ONE_PROCESS", None)
        if why:
            item.add_marker(pytest.mark.skip(reason=f"SKIPPED: {why}"))


def assert_nothing(leaks: Callable[[], str]) -> None:
    # The kernel frees some of it a little later.
    assert eventually(lambda: not leaks(), 5), f"left behind:\n{leaks()}"


def serve(what: str | Cluster, prepare: Callable[[Any], None], **arguments: Any) -> Iterator[Any]:
    """A running daemon of this name, or what was made already, that libdsec finds; afterwards
    nothing of it may be left.
    """
    one = Cluster if ARRANGEMENT == "cluster" else Daemon
    daemon = one(what, **arguments) if isinstance(what, str) else what
    saved = {k: os.environ.pop(k, None) for k in ("DSEC_URL", "DSEC_API_KEY", "DSEC_STATE")}
    try:
        prepare(daemon)
        os.environ["DSEC_STATE"] = str(daemon.state)
        daemon.start()
        yield daemon
        loop_thread.close()
        daemon.stop()
        assert_nothing(daemon.leaks)
    finally:
        loop_thread.close()
        daemon.stop()
        os.environ.pop("DSEC_STATE", None)
        os.environ.update({k: v for k, v in saved.items() if v is not None})
        daemon.remove()


@pytest.fixture(scope="module")
def daemon(request: pytest.FixtureRequest, tiny_tree: Path) -> Iterator[Daemon]:
    """This module's daemon, with the image tiny:1."""
    name = re.sub(r"[^a-z0-9]+", "-", request.module.__name__.removeprefix("test_"))[:16]
    yield from serve(name, lambda d: d.image_import(TINY, tiny_tree, "base"))


@pytest.fixture
def own(request: pytest.FixtureRequest, tiny_tree: Path) -> Iterator[Daemon]:
    """A daemon for one test, which may do with it what it likes, kill it among others. The marker
    `daemon` has its configuration and environment.
    """
    name = f"own-{abs(hash(request.node.name)) % 10000}"
    marker = request.node.get_closest_marker("daemon")
    arguments = marker.kwargs if marker else {}
    yield from serve(name, lambda d: d.image_import(TINY, tiny_tree, "base"), **arguments)


@pytest.fixture(autouse=True)
def _nothing_left_alive(request: pytest.FixtureRequest) -> Iterator[None]:
    """After a test that has ended its sandboxes nothing of them is left in the running daemon."""
    served = [n for n in ("daemon", "own") if n in request.fixturenames]
    daemons = [request.getfixturevalue(n) for n in served]
    yield
    for daemon in daemons:
        if daemon.running and not any(s.alive for s in Sandbox.list()):
            assert_nothing(daemon.live_leaks)


@pytest.fixture
def sandbox(daemon: Daemon) -> Iterator[Sandbox]:
    """A sandbox of tiny:1 with 64 MiB, for one test."""
    with Sandbox.create(TINY, memory_mb=64) as sb:
        yield sb


@pytest.fixture
def run_async(daemon: Daemon) -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Runs a coroutine to its end, bounded."""
    return lambda work: asyncio.run(asyncio.wait_for(work, TEST_SECONDS))

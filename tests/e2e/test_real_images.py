"""The images that scripts/quickstart makes: Debian with Python, a workspace, a toolkit. Skips where
they are not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import images
import pytest
from conftest import serve
from daemon import Daemon

from libdsec import Sandbox

NEEDED = [("base", "debian-python:12"), ("toolkit", "pytest:8")]


@pytest.fixture(scope="module")
def real(request: pytest.FixtureRequest) -> Iterator[Daemon]:
    if why := images.missing_images(NEEDED):
        pytest.skip(why)
    yield from serve("real", lambda d: d.borrow_images(images.QUICKSTART_STATE))


def test_the_readme_example(real):
    workspace = images.demo()["workspace"]
    with Sandbox.create(
        "debian-python:12", workspace=workspace, toolkits=["pytest:8"], cpu=1, memory_mb=512
    ) as sb:
        r = sb.commands.run("python3 -c 'print(6*7)'")
        assert (r.stdout, r.stderr, r.exit_code) == ("42\n", "", 0)
        assert (r.timed_out, r.oom_killed, r.stdout_truncated) == (False, False, False)
        sb.files.write("/root/a.txt", b"...")
        assert sb.files.read("/root/a.txt") == b"..."


def test_the_workspace_passes_its_own_tests_as_in_a_chroot(real):
    demo = images.demo()
    with Sandbox.create(
        "debian-python:12", workspace=demo["workspace"], toolkits=["pytest:8"], memory_mb=1024
    ) as sb:
        r = sb.commands.run(demo["command"], cwd=demo["cwd"], timeout=100)
    counts = {n: int(m[1]) if (m := re.search(rf"(\d+) {n}", r.stdout)) else 0
              for n in ("passed", "failed", "skipped")}  # fmt: skip
    assert counts == {n: demo[n] for n in counts}, r.stdout + r.stderr


@pytest.mark.C13
def test_python_starts_two_thousand_threads(real):
    script = (
        "import threading\n"
        "go = threading.Event()\n"
        "threads = [threading.Thread(target=go.wait) for _ in range(2000)]\n"
        "for t in threads: t.start()\n"
        "print(threading.active_count())\n"
        "go.set()\n"
        "for t in threads: t.join()\n"
    )
    with Sandbox.create("debian-python:12", memory_mb=512) as sb:
        r = sb.commands.run(["python3", "-c", script], timeout=60)
    assert (r.stdout, r.stderr, r.exit_code) == ("2001\n", "", 0)


@pytest.mark.C11
def test_python_over_its_memory_limit(real):
    with Sandbox.create("debian-python:12", memory_mb=64) as sb:
        r = sb.commands.run(["python3", "-c", "x = bytearray(200 << 20)"])
        assert (r.exit_code, r.oom_killed) == (137, True)
        assert sb.commands.run("echo fine").stdout == "fine\n"


def test_git_works(real):
    with Sandbox.create("debian-python:12") as sb:
        r = sb.commands.run(
            "cd /tmp && git init -q r && cd r && git -c user.name=a -c user.email=a@b commit -q "
            "--allow-empty -m first && git log --format=%s"
        )
        assert (r.stdout, r.exit_code) == ("first\n", 0), r.stderr

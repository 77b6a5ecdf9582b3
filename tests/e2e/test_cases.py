"""What breaks for people who run agent sandboxes, one test per case, through the public API."""

from __future__ import annotations

import hashlib
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import host
import pytest
from conftest import FULL, TINY

from libdsec import Sandbox

SLACK = 5
"""A promised time may be exceeded by so much on a busy machine before a test fails."""


@pytest.mark.C2
def test_output_over_its_cap_is_flagged_with_true_totals_and_the_exit_code(sandbox: Sandbox):
    whole = b"".join(b"%06d\n" % i for i in range(714_286))
    script = "seq -w 0 714285; exit 7"
    r = sandbox.commands.run(script, output_limit=1_000_000)
    assert r.exit_code == 7
    assert r.stdout_truncated
    assert r.stdout_total == len(whole) >= 5_000_000
    assert not r.stderr_truncated
    kept = len(r.stdout_bytes)
    assert kept <= 1_000_000
    ((start, length),) = r.stdout_dropped
    assert kept + length == len(whole)
    assert r.stdout_bytes == whole[:start] + whole[start + length :]
    # What is kept is the beginning and the end.
    assert start >= 400_000
    assert len(whole) - start - length >= 400_000


@pytest.mark.C2
def test_large_output_under_the_cap_is_whole(sandbox: Sandbox):
    r = sandbox.commands.run("seq -w 0 1999999 | tee /dev/stderr")
    whole = b"".join(b"%07d\n" % i for i in range(2_000_000))
    assert hashlib.sha256(r.stdout_bytes).digest() == hashlib.sha256(whole).digest()
    assert hashlib.sha256(r.stderr_bytes).digest() == hashlib.sha256(whole).digest()
    assert not r.stdout_truncated


@pytest.mark.C3
def test_a_time_limit_ends_everything_of_the_command_even_what_left_its_session(sandbox: Sandbox):
    markers = [f"300{os.getpid()}1", f"300{os.getpid()}2"]
    started = time.monotonic()
    r = sandbox.commands.run(f"sleep {markers[0]} & setsid sleep {markers[1]} & wait", timeout=1)
    assert r.timed_out
    assert time.monotonic() - started < 1 + 1 * SLACK
    assert [host.alive(m) for m in markers] == [[], []]


@pytest.mark.C3
def test_nothing_outlives_its_command(sandbox: Sandbox):
    marker = f"301{os.getpid()}"
    r = sandbox.commands.run(f"setsid sleep {marker} >/dev/null 2>&1 & echo started")
    assert r.stdout == "started\n"
    assert host.eventually(lambda: not host.alive(marker), SLACK), host.alive(marker)


@pytest.mark.C5
def test_random_bytes_are_exact_as_bytes_and_never_fail_as_text(sandbox: Sandbox):
    r = sandbox.commands.run(
        "head -c 4096 /dev/urandom > /tmp/r; cat /tmp/r; cat /tmp/r >&2", check=True
    )
    expected = sandbox.files.read("/tmp/r")
    assert len(expected) == 4096
    assert r.stdout_bytes == r.stderr_bytes == expected
    assert r.stdout == r.stderr == expected.decode("utf-8", errors="replace")
    assert sandbox.files.read_text("/tmp/r") == r.stdout


@pytest.mark.C6
def test_line_ends_are_byte_identical_whole_and_streamed(sandbox: Sandbox):
    expected = b"a\n\n\nb\r\n\r\n"
    script = r"printf 'a\n\n\nb\r\n\r\n'"
    assert sandbox.commands.run(script).stdout_bytes == expected
    streamed = list(sandbox.commands.start(script).stream())
    assert b"".join(data for name, data in streamed if name == "stdout") == expected
    assert [name for name, _ in streamed if name == "stderr"] == []


@pytest.mark.C7
def test_cat_without_stdin_returns_at_once(sandbox: Sandbox):
    started = time.monotonic()
    r = sandbox.commands.run("cat", timeout=30)
    assert (r.exit_code, r.stdout, r.timed_out) == (0, "", False)
    assert time.monotonic() - started < SLACK


@pytest.mark.C8
def test_stdin_of_8_mib_which_is_a_full_message_arrives_whole(sandbox: Sandbox):
    data = os.urandom(8 << 20)
    r = sandbox.commands.run("sha256sum", stdin=data, timeout=60)
    assert r.stdout.split()[0] == hashlib.sha256(data).hexdigest()


@pytest.mark.C8
def test_a_command_that_does_not_read_its_8_mib_of_stdin_ends_all_the_same(sandbox: Sandbox):
    r = sandbox.commands.run("head -c 1", stdin=b"x" * (8 << 20), timeout=60)
    assert (r.exit_code, r.stdout) == (0, "x")


@pytest.mark.C9
def test_output_before_a_time_limit_is_kept(sandbox: Sandbox):
    r = sandbox.commands.run("for i in 1 2 3; do echo $i; done; sleep 99", timeout=2)
    assert r.stdout == "1\n2\n3\n"
    assert r.timed_out
    assert r.exit_code == 137


@pytest.mark.C10
def test_a_limit_just_exceeded_is_the_same_typed_result_each_time(sandbox: Sandbox):
    count = 100 if FULL else 10
    results = [sandbox.commands.run("sleep 1.25", timeout=1.0) for _ in range(count)]
    assert {(r.timed_out, r.exit_code, r.signal) for r in results} == {(True, 137, 9)}
    assert all(1.0 <= r.duration < 1.25 + SLACK for r in results)


@pytest.mark.C11
def test_memory_over_the_limit_is_exit_137_and_the_next_command_works(daemon):
    with Sandbox.create(TINY, memory_mb=32) as sb:
        for _ in range(2):
            r = sb.commands.run(["dd", "if=/dev/zero", "of=/dev/null", "bs=100M", "count=1"])
            assert (r.exit_code, r.signal, r.oom_killed) == (137, 9, True)
            assert not r.timed_out
            after = sb.commands.run("echo fine")
            assert (after.stdout, after.exit_code, after.oom_killed) == ("fine\n", 0, False)
        assert sb.info().phase == "running"


@pytest.mark.C12
def test_commands_that_exit_before_reading_their_stdin_keep_their_own_result(sandbox: Sandbox):
    count = 200 if FULL else 20

    def one(i: int) -> tuple[str, int]:
        r = sandbox.commands.run(f"echo err{i} >&2; exit {i % 100}", stdin=b"x" * (1 << 20))
        return r.stderr, r.exit_code

    with ThreadPoolExecutor(count) as threads:
        results = list(threads.map(one, range(count)))
    assert results == [(f"err{i}\n", i % 100) for i in range(count)]


@pytest.mark.C15
def test_20000_files_can_be_open_at_once(sandbox: Sandbox):
    """`tail` opens all the files it is given and keeps them open."""
    limit = int(sandbox.commands.run("ulimit -n").stdout)
    wanted = min(20_000, limit - 16)
    script = f"""
        mkdir /tmp/many && cd /tmp/many && seq {wanted} | xargs touch
        tail -q -f $(seq {wanted}) & tail=$!
        for i in $(seq 600); do
            n=$(ls /proc/$tail/fd | wc -l)
            [ $n -ge {wanted} ] && break
            sleep 0.1
        done
        echo $n
    """
    r = sandbox.commands.run(script, timeout=100)
    assert int(r.stdout) >= wanted, r.stderr
    if limit < 65_536:
        reason = f"the host's hard limit is {limit}: {wanted} files were open, 65,536 cannot be"
        print(f"SKIPPED: {reason}")
        pytest.skip(reason)


@pytest.mark.C17
def test_uploads_at_once_into_a_directory_that_does_not_exist(sandbox: Sandbox):
    with ThreadPoolExecutor(64) as threads:
        list(
            threads.map(
                lambda i: sandbox.files.write(f"/home/agent/new/deep/{i}", b"%d" % i, user="agent"),
                range(64),
            )
        )
    listing = sandbox.commands.run("cd /home/agent/new/deep && stat -c '%n %u %a' * | sort -n")
    assert listing.stdout.splitlines() == [f"{i} 1000 644" for i in range(64)]
    assert sandbox.files.read("/home/agent/new/deep/63") == b"63"


@pytest.mark.C18
def test_an_upload_is_there_for_the_next_command(sandbox: Sandbox):
    for i in range(500 if FULL else 50):
        data = os.urandom(1 + i * 37)
        sandbox.files.write("/tmp/upload", data)
        out = sandbox.commands.run(["sha256sum", "/tmp/upload"]).stdout
        assert out.split()[0] == hashlib.sha256(data).hexdigest()


@pytest.mark.C20
def test_a_path_with_links_or_dots_stays_inside(sandbox: Sandbox, daemon):
    sandbox.commands.run("ln -s /etc/passwd /tmp/link; ln -s /../../.. /tmp/up", check=True)
    assert b"agent" in sandbox.files.read("/tmp/link")
    assert b"agent" in sandbox.files.read("/../../../../etc/passwd")
    name = f"dsec-escape-{os.getpid()}"
    sandbox.files.write(f"/tmp/up/tmp/{name}", b"inside")
    assert not Path("/tmp", name).exists()
    assert sandbox.commands.run(["cat", f"/tmp/{name}"]).stdout == "inside"

"""`dsecd doctor` and `dsecd config` as an operator uses them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import TINY, assert_nothing
from daemon import ROOT, Daemon, binary, leak_check
from host import eventually

from libdsec import Sandbox

INSTANCE = f"e2e-{os.getpid()}-doc"


def dsecd(*arguments: object, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [binary(), *map(str, arguments)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100, **more,
    )  # fmt: skip


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "dsecd.toml"
    file.write_text(f"[node]\ninstance = '{INSTANCE}'\n")
    return file


def leaks(state: Path) -> str:
    """Of the doctor's own instances, by the names that all of them begin with."""
    found = []
    for trial in ("-doctor-probe", "-doctor-groups"):
        done = subprocess.run(
            [leak_check(), INSTANCE + trial, state / "doctor"], capture_output=True, text=True
        )
        assert done.returncode in (0, 1), done.stderr
        found.append(done.stdout)
    return "".join(found)


def by_name(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {c["name"]: c for c in report["capabilities"]}


# ---- doctor


def test_the_doctor_finds_all_that_is_needed_here_and_leaves_nothing(tmp_path, config):
    state = tmp_path / "state"
    done = dsecd("doctor", "--config", config, "--state", state, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["ok"] is True
    needed = {name for name, c in by_name(report).items() if c["needed"]}
    assert needed >= {
        "EROFS", "mapped ids", "overlay with a mapped upper", "control group hierarchies",
        "limits of control groups", "clone into a control group", "cgroup.kill",
        "user namespaces", "mkfs.erofs",
    }  # fmt: skip
    for capability in report["capabilities"]:
        assert all(capability[k] for k in ("area", "name", "found", "mend", "without")), capability
        assert capability["have"] or not capability["needed"], capability
    # There was no state directory, and there is none now.
    assert {p.name for p in tmp_path.iterdir()} == {"dsecd.toml"}
    assert_nothing(lambda: leaks(state))


def test_what_is_lacking_is_named_with_its_remedy_and_only_needed_things_fail_the_doctor(
    tmp_path, config
):
    empty = tmp_path / "no-programs"
    empty.mkdir()
    arguments = ("doctor", "--config", config, "--state", tmp_path / "state")
    without_tools = {**os.environ, "PATH": str(empty)}
    done = dsecd(*arguments, "--json", env=without_tools)
    assert done.returncode == 1
    found = by_name(json.loads(done.stdout))
    assert found["mkfs.erofs"]["needed"]
    assert found["mkfs.erofs"]["mend"] == "apt-get install erofs-utils"
    assert not found["mmdebstrap"]["have"]
    assert not found["mmdebstrap"]["needed"]
    text = dsecd(*arguments, env=without_tools)
    assert text.returncode == 1
    assert "LACK  mkfs.erofs" in text.stdout
    assert "to mend: apt-get install erofs-utils" in text.stdout
    assert "lack  skopeo" in text.stdout
    assert "1 of what sandboxes need is lacking" in text.stdout


def test_limits_are_judged_against_the_configuration(tmp_path, config):
    most = 40_000
    config.write_text(f"[node]\ninstance = '{INSTANCE}'\nmax_sandboxes = {most}\n")
    done = dsecd("doctor", "--config", config, "--state", tmp_path / "state", "--json")
    pids = by_name(json.loads(done.stdout))["kernel.pid_max"]
    here = int(Path("/proc/sys/kernel/pid_max").read_text())
    needed = 8192 + 8 * most
    assert pids["found"].startswith(f"{here}, {needed} needed")
    assert pids["have"] == (here >= needed)
    assert done.returncode == 0  # fewer sandboxes are no lack of what one needs


@pytest.mark.parametrize("trap", ["directory of another", "writable by all", "link"])
def test_the_doctor_works_in_no_directory_that_others_have_laid_out(tmp_path, config, trap):
    place, victim = tmp_path / f".doctor-{INSTANCE}", tmp_path / "victim"
    victim.mkdir()
    (victim / "kept").write_text("kept")
    if trap == "link":
        place.symlink_to(victim)
    else:
        place.mkdir()
        (place / "kept").write_text("kept")
    if trap == "directory of another":
        os.chown(place, 12345, 12345)
    if trap == "writable by all":
        place.chmod(0o777)
    done = dsecd("doctor", "--config", config, "--state", tmp_path / "state")
    assert done.returncode != 0
    assert str(place) in done.stderr or place.name in done.stderr
    assert (victim / "kept").read_text() == "kept"
    assert (place / "kept").read_text() == "kept"


def test_the_doctor_works_beside_a_daemon_and_does_not_touch_it(daemon: Daemon):
    with Sandbox.create(TINY, memory_mb=64) as sandbox:
        arguments = ("doctor", "--config", daemon.config, "--state", daemon.state)
        done = dsecd(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "all that sandboxes need is there" in done.stdout
        assert sandbox.commands.run(["echo", "on"]).stdout == "on\n"
    assert not (daemon.state / "doctor").exists()


def test_a_second_doctor_does_not_get_in_the_way_of_the_first(tmp_path, config):
    arguments = [binary(), "doctor", "--config", config, "--state", tmp_path]
    first = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    assert eventually((tmp_path / "doctor" / "empty.erofs").exists)
    second = dsecd(*arguments[1:])
    assert second.returncode == 73
    assert "another dsecd doctor" in second.stderr
    assert "all that sandboxes need is there" in first.communicate(timeout=60)[0]


def test_what_a_killed_doctor_leaves_goes_with_the_next(tmp_path, config):
    arguments = [binary(), "doctor", "--config", config, "--state", tmp_path]
    first = subprocess.Popen(arguments, stdout=subprocess.DEVNULL)
    # Its sandbox is being made.
    assert eventually((tmp_path / "doctor" / "probe" / "sandboxes").exists, 30)
    first.send_signal(signal.SIGKILL)
    first.wait()
    done = dsecd(*arguments[1:])
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (tmp_path / "doctor").exists()
    assert_nothing(lambda: leaks(tmp_path))


def test_the_doctor_must_be_root(tmp_path, config):
    tmp_path.chmod(0o755)
    done = dsecd("doctor", "--state", "/nonexistent", user=65534)
    assert done.returncode == 77
    assert "must run as root" in done.stderr


# ---- config


def refused(file: Path, code: int = 64) -> str:
    done = dsecd("config", "check", file)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    return done.stderr


def test_a_right_file_is_checked_silently_and_dumped_whole(tmp_path):
    shipped = ROOT / "config" / "dsecd.toml"
    checked = dsecd("config", "check", shipped)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
    dumped = dsecd("config", "dump", shipped)
    again = tmp_path / "again.toml"
    again.write_text(dumped.stdout)
    assert dsecd("config", "dump", again).stdout == dumped.stdout
    assert dsecd("config", "dump").stdout == dumped.stdout  # the shipped ones are the defaults
    moved = dsecd("config", "dump", shipped, env={**os.environ, "DSEC_STATE": "/srv/elsewhere"})
    assert "state = '/srv/elsewhere'" in moved.stdout.replace('"', "'")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("[gateway]\nprot = 1\n", ":2: unknown key 'gateway.prot'; the nearest known one is "),
        ("[gatway]\nport = 1\n", "the nearest known one is 'gateway'"),
        ("[gateway]\nport = 70000\n", ":2: gateway.port must be between 0 and 65535 (TCP port"),
        ("[sandbox]\nmemory_mb = 'much'\n", ":2: sandbox.memory_mb must be a number (MiB)"),
        ("state = 7\n", ":1: state must be a non-empty string (directory)"),
        ("[gateway\n", ":1: "),
        ("log_level = 'info'\nlog_level = 'warn'\n", ":2: "),
    ],
)
def test_a_wrong_file_is_answered_with_line_range_unit_and_nearest_key(tmp_path, text, answer):
    file = tmp_path / "wrong.toml"
    file.write_text(text)
    said = refused(file)
    assert said.startswith(f"dsecd: {file}")
    assert answer in said


def test_a_file_that_cannot_be_a_configuration(tmp_path):
    assert "is a directory" in refused(tmp_path)
    assert "No such file" in refused(tmp_path / "none.toml", 66)
    pipe = tmp_path / "pipe.toml"
    os.mkfifo(pipe)
    assert "neither a file" in refused(pipe)
    binary_file = tmp_path / "binary.toml"
    binary_file.write_bytes(b"log_level = '\xff'\n")
    assert "not UTF-8" in refused(binary_file)
    large = tmp_path / "large.toml"
    large.touch()
    os.truncate(large, 1 << 40)
    assert "it is no config" in refused(large, 65)


def test_a_file_that_may_not_be_read(tmp_path):
    file = tmp_path / "secret.toml"
    file.write_text("")
    file.chmod(0)
    for directory in [tmp_path, *tmp_path.parents]:
        if directory.stat().st_uid == os.geteuid() and directory != Path("/"):
            directory.chmod(directory.stat().st_mode | 0o011)
    done = dsecd("config", "check", file, user=65534)
    assert done.returncode == 77
    assert "Permission denied" in done.stderr

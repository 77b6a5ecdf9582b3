"""`dsecd`: the examples of its help run, shells complete it, and its smoke test."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import tarfile
import tempfile
from pathlib import Path

import host
import oci
import pytest
from conftest import assert_nothing
from daemon import ROOT, Daemon, binary, leak_check
from host import eventually


ONE_PROCESS = "the examples start and stop processes of their own"


def dsecd(*arguments: object, **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [binary(), *map(str, arguments)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=110, **more,
    )  # fmt: skip


def places() -> list[tuple[str, ...]]:
    """Every subcommand, as the completion script lists them."""
    script = dsecd("completion", "bash").stdout
    return [tuple(at.split()) for at in re.findall(r"^    '([a-z ]+)'\) found=", script, re.M)]


def examples() -> list[str]:
    found = []
    for place in places():
        text = dsecd(*place[1:], "--help").stdout
        if len(place) > 1:
            assert "Examples:" in text, place
        found += re.findall(r"^  ((?:source <\()?dsecd .*?)(?:  +[a-z].*)?$", text, re.M)
    return list(dict.fromkeys(found))


def test_every_subcommand_has_an_example_of_itself():
    lines = examples()
    for place in places()[:-1]:
        assert any(" ".join(place) in line for line in lines), place


# ---- examples


@pytest.fixture
def sandbox_of_paths(tmp_path: Path, tiny_tree: Path):
    """A daemon's own place for an example: its directories stand for those of the text."""
    daemon = Daemon("help")
    work = tmp_path / "work"
    work.mkdir()
    (work / "config").symlink_to(ROOT / "config")
    for name in ("checkout", "dir"):
        shutil.copytree(tiny_tree, work / name, symlinks=True)
    (work / "image.json").write_text("{}")
    shutil.copy(ROOT / "config" / "coordinator.toml", work)
    secret = work / "secret"
    secret.write_text("s" * 40)
    secret.chmod(0o600)
    (work / "worker.toml").write_text(
        f"[peer]\ncoordinators = ['127.0.0.1:{host.free_port()}']\nsecret_file = '{secret}'\n"
    )
    layout = oci.Layout(work / "layout")
    layer = oci.tar([oci.entry("etc", tarfile.DIRTYPE), oci.entry("etc/name", data=b"mine")])
    layout.tag(layout.manifest([layer]), "1")
    daemon.image_import("project:2024-06-01", tiny_tree, "workspace")
    yield daemon, work
    daemon.stop()
    assert_nothing(daemon.leaks)
    daemon.remove()


def moved(line: str, daemon: Daemon, work: Path) -> str:
    """The example with its system directories inside `work`."""
    line = line.replace("--state /srv/dsec", "").replace("--instance second", "")
    line = re.sub(r"--port \d+", "", line)
    for directory in ("/etc/bash_completion.d/", "/usr/local/share/zsh/site-functions/"):
        line = line.replace(directory, f"{work}/")
    return line


def run_example(line: str, daemon: Daemon, work: Path) -> None:
    programs = work / "bin"
    programs.mkdir()
    wrapper = programs / "dsecd"
    own = f"--config {daemon.config} --state {daemon.state}"
    served = f"--instance {daemon.instance} --port {daemon.port}"
    wrapper.write_text(
        "#!/bin/bash\n"
        f'case "$1" in\n  serve|--role*) exec {binary()} "$@" --state {daemon.state} {served} ;;\n'
        f'  image|key) exec {binary()} "$@" --state {daemon.state} ;;\n'
        f'  stop|purge|doctor|smoke) exec {binary()} "$@" {own} ;;\n'
        f'  *) exec {binary()} "$@" ;;\nesac\n'
    )
    wrapper.chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    process = subprocess.Popen(
        ["bash", "-euc", f"exec {line}" if line.startswith("dsecd") else line],
        cwd=work, env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    if "serve" in shlex.split(line) or "--role" in line:
        assert eventually(daemon.ready, 60), line
        process.send_signal(signal.SIGUSR1)
    out, _ = process.communicate(timeout=110)
    assert process.returncode == 0, f"{line}:\n{out}"


@pytest.mark.parametrize("line", examples())
def test_an_example_of_the_help_runs(line, sandbox_of_paths):
    daemon, work = sandbox_of_paths
    if "debian:" in line or "docker://" in line:
        pytest.skip("takes a mirror or a registry; import_debian_test.cpp and test_oci.py have them")
    if "docker-archive:" in line:
        if why := oci.missing("skopeo"):
            pytest.skip(why)
        subprocess.run(
            ["skopeo", "copy", "-q", "oci:layout:1", "docker-archive:saved.tar:mine:1"],
            cwd=work, check=True,
        )  # fmt: skip
    if line.startswith(("dsecd stop", "dsecd purge", "dsecd doctor", "dsecd smoke")):
        daemon.config.write_text(f"[node]\ninstance = '{daemon.instance}'\n")
        if "doctor" not in line and "smoke" not in line:
            daemon.start()
    if line.startswith("dsecd key revoke"):
        made = daemon.dsecd("key", "create", "--principal", "alice")
        line = line.replace("k-abcdefghij", made.splitlines()[1].split()[1])
    process, daemon._process = daemon._process, None
    run_example(moved(line, daemon, work), daemon, work)
    if process is not None:
        assert process.wait(60) == 0


# ---- completion


def bash(*words: str) -> list[str]:
    ask = (
        f"source <({shlex.quote(str(binary()))} completion bash)\n"
        f"COMP_WORDS=({shlex.join(words)})\nCOMP_CWORD={len(words) - 1}\n"
        '_dsecd\nprintf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(["bash", "-eu", "-c", ask], capture_output=True, text=True, check=True)
    return done.stdout.split()


def zsh(*words: str) -> list[str]:
    if shutil.which("zsh") is None:
        pytest.skip("no zsh here; scripts/setup installs it")
    stand_ins = 'compadd() { shift; print -l -- "$@" }\n_files() { }\n'
    place = f"words=({shlex.join(words)})\nCURRENT={len(words)}\n"
    script = dsecd("completion", "zsh").stdout
    done = subprocess.run(
        ["zsh", "-f", "-c", stand_ins + place + script], capture_output=True, text=True, check=True
    )
    return done.stdout.split()


@pytest.mark.parametrize("shell", [bash, zsh])
def test_shells_offer_subcommands_and_options(shell):
    assert {"serve", "image", "key", "doctor", "smoke", "--version"} <= set(shell("dsecd", ""))
    assert {"import", "ls", "rm"} <= set(shell("dsecd", "image", ""))
    assert {"--kind", "--config", "--state"} <= set(shell("dsecd", "image", "import", "x", ""))
    assert "--json" in shell("dsecd", "doctor", "--state", "/srv", "")


def test_bash_offers_only_what_begins_so():
    assert bash("dsecd", "do") == ["doctor"]
    assert bash("dsecd", "stop", "--a") == ["--all"]


# ---- smoke


@pytest.fixture
def smoke_place(tmp_path: Path):
    instance = f"e2e-{os.getpid()}-smk"
    state = Path(tempfile.mkdtemp(prefix="dsec-smoke-"))
    config = tmp_path / "dsecd.toml"
    config.write_text(f"[node]\ninstance = '{instance}'\n")
    yield config, state

    def leaks() -> str:
        done = subprocess.run(
            [leak_check(), f"{instance}-smoke", state / "smoke" / "state"],
            capture_output=True, text=True,
        )  # fmt: skip
        return done.stdout

    assert_nothing(leaks)
    assert list(state.iterdir()) == []
    state.rmdir()


STEPS = ["image", "start", "create", "exec", "isolation", "kill", "recovery", "stop", "clean-up"]


def test_the_smoke_test_goes_through_a_sandboxes_life_and_leaves_nothing(smoke_place):
    config, state = smoke_place
    done = dsecd("smoke", "--config", config, "--state", state)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[:2] for line in lines[:-1]] == [["ok", step] for step in STEPS]
    assert re.search(r"\d\d+ attacks of root inside were denied", done.stdout)
    assert lines[-1] == "all is well"


def test_a_smoke_test_that_fails_names_the_step_and_leaves_nothing(smoke_place, tmp_path):
    config, state = smoke_place
    done = dsecd("smoke", "--config", config, "--state", state, env={"PATH": str(tmp_path)})
    assert done.returncode == 1
    assert done.stdout.startswith("FAIL  image")
    assert "erofs-utils" in done.stdout
    config.write_text(config.read_text() + "memory_reserve_mb = 16000000\n")
    done = dsecd("smoke", "--config", config, "--state", state)
    assert done.returncode == 1
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [
        ["ok", "image"], ["ok", "start"], ["FAIL", "create"],
    ]  # fmt: skip


def test_a_killed_smoke_test_is_cleared_by_the_next(smoke_place):
    config, state = smoke_place
    arguments = ("smoke", "--config", str(config), "--state", str(state))
    process = subprocess.Popen([binary(), *arguments], stdout=subprocess.PIPE, text=True)
    while not process.stdout.readline().startswith("ok    create"):
        assert process.poll() is None
    process.kill()
    process.communicate()
    assert host.launcher_of(state / "smoke" / "state") != 0
    done = dsecd(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr

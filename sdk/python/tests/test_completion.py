"""What the shells offer after `dsec completion`."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from libdsec import _cli_completion, cli


def bash(*words: str) -> list[str]:
    script = _cli_completion.script(cli._parser(), _cli_completion.BASH)
    ask = (
        f"{script}\nCOMP_WORDS=({' '.join(map(repr, words))})\nCOMP_CWORD={len(words) - 1}\n"
        '_dsec\nprintf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(["bash", "-eu", "-c", ask], capture_output=True, text=True, check=True)
    return done.stdout.split()


def zsh(*words: str) -> list[str]:
    if shutil.which("zsh") is None:
        pytest.skip("no zsh here")
    script = _cli_completion.script(cli._parser(), _cli_completion.ZSH)
    stand_ins = 'compadd() { shift; print -l -- "$@" }\n_files() { }\n'
    place = f"words=({' '.join(map(repr, words))})\nCURRENT={len(words)}\n"
    done = subprocess.run(
        ["zsh", "-f", "-c", stand_ins + place + script], capture_output=True, text=True, check=True
    )
    return done.stdout.split()


@pytest.mark.parametrize("shell", [bash, zsh])
def test_commands_options_and_choices_are_offered(shell):
    assert {"run", "ps", "events", "top", "completion"} <= set(shell("dsec", ""))
    assert {"--once", "--interval", "--output"} <= set(shell("dsec", "top", ""))
    assert {"bash", "zsh"} <= set(shell("dsec", "completion", ""))
    assert "--trace" in shell("dsec", "events", "--follow", "")
    assert shell("dsec", "exec", "ID", "--", "") == []


def test_bash_offers_only_what_begins_so():
    assert bash("dsec", "ev") == ["events"]
    assert bash("dsec", "events", "--tr") == ["--trace"]

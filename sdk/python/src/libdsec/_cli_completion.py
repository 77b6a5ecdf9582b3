"""`dsec completion bash|zsh`: a script for the shell that knows every command and option, made of
the same parser that reads the command line.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

BASH = """\
# Put into a file that bash reads: dsec completion bash > /etc/bash_completion.d/dsec
_dsec() {{
  local at=dsec found= word
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    [ "$word" = -- ] && {{ COMPREPLY=(); return; }}
    case "$at $word" in {steps}) at="$at $word" ;; esac
  done
  case "$at" in
{words}
  esac
  COMPREPLY=($(compgen -W "$found" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _dsec dsec
"""

ZSH = """\
#compdef dsec
# Put into a directory of $fpath: dsec completion zsh > /usr/local/share/zsh/site-functions/_dsec
_dsec() {{
  local at=dsec found= word
  for word in ${{words[2,CURRENT-1]}}; do
    [ "$word" = -- ] && return
    case "$at $word" in {steps}) at="$at $word" ;; esac
  done
  case "$at" in
{words}
  esac
  compadd -- ${{=found}}
  _files
}}
_dsec "$@"
"""


def add(
    add_command: Callable[..., argparse.ArgumentParser], parser: argparse.ArgumentParser
) -> None:
    def work(options: argparse.Namespace) -> int:
        print(script(parser, BASH if options.shell == "bash" else ZSH), end="")
        return 0

    completion = add_command(
        "completion",
        work,
        "print a script that completes command lines",
        "dsec completion bash",
        "dsec completion zsh",
    )
    completion.add_argument("shell", choices=("bash", "zsh"))


def script(parser: argparse.ArgumentParser, template: str) -> str:
    commands = _choices(parser)
    places = {"dsec": [*commands, *_options(parser)]}
    for name, sub in commands.items():
        places[f"dsec {name}"] = [*_choices(sub), *_options(sub)]
    steps = "|".join(f"'dsec {name}'" for name in commands)
    words = "\n".join(f"    '{at}') found='{' '.join(found)}' ;;" for at, found in places.items())
    return template.format(steps=steps, words=words)


def _options(parser: argparse.ArgumentParser) -> list[str]:
    return [o for action in parser._actions for o in action.option_strings if o.startswith("--")]


def _choices(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """What may stand in the place of its first argument of few values, subcommands mostly."""
    for action in parser._actions:
        if not action.option_strings and action.choices:
            return {
                name: action.choices[name] if isinstance(action.choices, dict) else parser
                for name in action.choices
            }
    return {}

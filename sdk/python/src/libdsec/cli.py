"""The `dsec` command: sandboxes from the shell.

Exits with the command's own code where there is a command (124 when its time limit ended it, 74
instead of 0 when output was lost), else with the code of the error (src/base/error.cpp;
docs/errors.md), 64 for wrong usage, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any, NoReturn

from . import _async_commands, _cli_completion, _cli_watch
from ._cli_output import age, print_json, print_table
from ._sync import Sandbox
from ._sync_commands import Command
from .errors import DSecError, IoError
from .models import CommandResult, CommandState, SandboxInfo

TIMED_OUT = 124  # as timeout(1)
USAGE = 64  # EX_USAGE of sysexits(3), the exit code of invalid_argument
INTERRUPTED = 130


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(USAGE, f"{self.prog}: {message}\n")


def _example(*lines: str) -> str:
    return "examples:\n" + "\n".join(f"  {line}" for line in lines)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="dsec",
        description="Sandboxes of a dsecd. Address and key come from DSEC_URL and DSEC_API_KEY, "
        "else from the state directory (DSEC_STATE, /var/lib/dsec).",
        epilog=_example(
            "dsec run debian-python:12 -- python3 -c 'print(6 * 7)'",
            "dsec ps",
            "dsec kill ID",
        )
        + "\n\n`dsec COMMAND --help` says more.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="verb", metavar="COMMAND", required=True)

    def add(
        name: str, work: Callable[[argparse.Namespace], int], summary: str, *examples: str
    ) -> argparse.ArgumentParser:
        sub = commands.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            epilog=_example(*examples),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        sub.add_argument("-o", "--output", choices=("text", "json"), default="text")
        sub.set_defaults(work=work)
        return sub

    run = add(
        "run",
        _run,
        "run one command in a new sandbox, print its output, remove the sandbox",
        "dsec run debian-python:12 -- python3 -c 'print(6 * 7)'",
        "dsec run debian-python:12 --toolkit pytest:8 --cpu 2 --memory 1024 -- pytest --version",
        "dsec run debian-python:12 --env NAME=value --timeout 60 -o json -- sh -c 'echo $NAME'",
        "dsec run debian-python:12 --keep -- true",
        "dsec run web:1 --use-entrypoint -- --port 80",
    )
    run.add_argument("image", metavar="IMAGE", help="base layer, NAME:TAG")
    run.add_argument("--workspace", metavar="W", help="workspace layer, NAME:TAG")
    run.add_argument(
        "--toolkit", metavar="T", action="append", default=[], help="toolkit layer; may be repeated"
    )
    run.add_argument("--cpu", type=float, default=0, help="CPUs, for example 0.5")
    run.add_argument("--memory", type=int, default=0, metavar="MIB", help="memory limit in MiB")
    run.add_argument(
        "--keep",
        action="store_true",
        help="leave the sandbox running: detached, it ends by `dsec kill` only",
    )
    _command_options(run)

    ps = add("ps", _ps, "list sandboxes", "dsec ps", "dsec ps --all -o json")
    ps.add_argument("-a", "--all", action="store_true", help="ended ones too")

    exec_ = add(
        "exec",
        _exec,
        "run a command in a running sandbox",
        "dsec exec ID -- ls /",
        "dsec exec ID --user nobody --timeout 10 -- id",
    )
    exec_.add_argument("id", metavar="ID", help="of the sandbox")
    _command_options(exec_)

    kill = add("kill", _kill, "stop sandboxes and all that runs in them", "dsec kill ID")
    kill.add_argument("ids", metavar="ID", nargs="+", help="of a sandbox")

    logs = add(
        "logs",
        _logs,
        "list the commands of a sandbox, or print what one of them has written",
        "dsec logs ID",
        "dsec logs ID COMMAND",
    )
    logs.add_argument("id", metavar="ID", help="of the sandbox")
    logs.add_argument("command", metavar="COMMAND", nargs="?", help="id of a command")
    _cli_watch.add(add)
    _cli_completion.add(add, parser)
    return parser


def _command_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--env", metavar="K=V", action="append", default=[], type=_pair, help="may be repeated"
    )
    parser.add_argument("--user", help="NAME, UID, NAME:GROUP or UID:GID")
    parser.add_argument(
        "--timeout", type=float, metavar="S", help="kill the command after S seconds"
    )
    parser.add_argument(
        "--use-entrypoint",
        action="store_true",
        help="CMD and ARG follow the image's Entrypoint; without any, the image's Cmd does",
    )
    parser.usage = f"{parser.format_usage().removeprefix('usage: ').strip()} -- CMD [ARG ...]"


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=VALUE")
    return name, value


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    command: list[str] = []
    if "--" in arguments:
        split = arguments.index("--")
        arguments, command = arguments[:split], arguments[split + 1 :]
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.verb in ("run", "exec"):
        if not command and not options.use_entrypoint:
            parser.error(f"{options.verb} needs a command after `--`")
    elif command:
        parser.error(f"{options.verb} takes no command")
    options.cmd = command
    with _terminable():
        try:
            code: int = options.work(options)
            sys.stdout.flush()
            return code
        except DSecError as error:
            return _report(error, options.output)
        except BrokenPipeError:
            # The reader of the output has gone; the interpreter's own flush at exit must not say so
            # again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 128 + signal.SIGPIPE
        except KeyboardInterrupt:
            return INTERRUPTED


@contextlib.contextmanager
def _terminable() -> Any:
    """SIGTERM ends as Ctrl-C does, so that the sandbox of `run` is removed."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    try:
        previous = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _report(error: DSecError, output: str) -> int:
    if output == "json":
        print(json.dumps({"error": _error_json(error)}), file=sys.stderr)
    else:
        print(f"dsec: {error}", file=sys.stderr)
    return error.exit_code


# ---- commands


def _run(options: argparse.Namespace) -> int:
    sandbox: Sandbox | None = None
    try:
        sandbox = Sandbox.create(
            options.image,
            workspace=options.workspace,
            toolkits=options.toolkit,
            cpu=options.cpu,
            memory_mb=options.memory,
            detached=options.keep,
        )
        for warning in sandbox.warnings:
            print(f"dsec: warning: {warning}", file=sys.stderr)
        return _run_command(sandbox, options)
    finally:
        if sandbox is None:
            pass  # interrupted: create() undoes it or, when we are gone, the daemon does
        elif options.keep:
            print(f"dsec: sandbox {sandbox.id} goes on running", file=sys.stderr)
        else:
            sandbox.stop()


def _exec(options: argparse.Namespace) -> int:
    return _run_command(Sandbox.connect(options.id), options)


def _run_command(sandbox: Sandbox, options: argparse.Namespace) -> int:
    command = sandbox.commands.start(
        options.cmd,
        env=dict(options.env),
        user=options.user,
        timeout=options.timeout,
        use_entrypoint=options.use_entrypoint,
    )
    try:
        if options.output == "text":
            with contextlib.suppress(IoError):  # the result has it too
                for stream, data in command.stream():
                    _write(stream, data)
        result = command.wait()
    except (KeyboardInterrupt, BrokenPipeError):
        with contextlib.suppress(DSecError):
            command.kill()
        raise
    if options.output == "json":
        print_json(_result_json(command, result, sandbox.warnings))
    elif result.timed_out:
        print(f"dsec: ended by its time limit of {options.timeout:g} s", file=sys.stderr)
    elif result.oom_killed:
        print("dsec: killed: the sandbox's memory limit was reached", file=sys.stderr)
    code = TIMED_OUT if result.timed_out else result.exit_code
    if result.error is None:
        return code
    if options.output == "text":
        print(f"dsec: {result.error}", file=sys.stderr)
    return code or result.error.exit_code


def _ps(options: argparse.Namespace) -> int:
    sandboxes = [s for s in Sandbox.list() if options.all or s.alive]
    if options.output == "json":
        print_json([_sandbox_json(s) for s in sandboxes])
        return 0
    rows = [
        (s.id, s.phase, s.image, age(s), str(s.commands_running), "" if s.alive else s.cause)
        for s in sandboxes
    ]
    print_table(("SANDBOX", "PHASE", "IMAGE", "AGE", "COMMANDS", "CAUSE"), rows)
    return 0


def _kill(options: argparse.Namespace) -> int:
    stopped: list[SandboxInfo] = []
    code = 0
    for sandbox_id in options.ids:
        try:
            stopped.append(Sandbox.connect(sandbox_id).stop())
        except DSecError as error:
            code = _report(error, options.output) or code
    if options.output == "json":
        print_json([_sandbox_json(s) for s in stopped])
    else:
        for sandbox in stopped:
            print(sandbox.id)
    return code


def _logs(options: argparse.Namespace) -> int:
    sandbox = Sandbox.connect(options.id)
    if options.command is None:
        commands = sandbox.commands.list()
        if options.output == "json":
            print_json([_command_json(c.state) for c in commands])
        else:
            print_table(
                ("COMMAND", "STATE", "EXIT", "SECONDS", "ARGV"), (_row(c.state) for c in commands)
            )
        return 0
    command = sandbox.commands.get(options.command)
    if options.output == "json":
        written = {
            stream: b"".join(_written(command, stream)).decode("utf-8", errors="replace")
            for stream in (_async_commands.STDOUT, _async_commands.STDERR)
        }
        print_json({**_command_json(command.state), **written})
        return 0
    for stream in (_async_commands.STDOUT, _async_commands.STDERR):
        for data in _written(command, stream):
            _write(stream, data)
    return 0


def _written(command: Command, stream: str) -> Iterable[bytes]:
    """What there is of it now, the dropped middle left out."""
    offset = 0
    while (piece := command.read(stream, offset)).data:
        yield piece.data
        offset = piece.offset + len(piece.data)
    if piece.ended and offset < piece.total:
        lost = {stream: (piece.total - offset, piece.total)}
        raise _async_commands.lost_output(command.id, lost)


# ---- output


def _write(stream: str, data: bytes) -> None:
    target = sys.stdout if stream == _async_commands.STDOUT else sys.stderr
    target.flush()
    target.buffer.write(data)
    target.buffer.flush()


def _row(state: CommandState) -> tuple[str, ...]:
    argv = shlex.join(state.argv).replace("\n", "\\n")
    ended = state.ended
    return (
        state.id,
        state.state,
        str(state.exit_code) if ended else "",
        f"{state.duration_us / 1e6:.3f}" if ended else "",
        argv if len(argv) <= 60 else argv[:57] + "...",
    )


def _sandbox_json(sandbox: SandboxInfo) -> dict[str, Any]:
    return asdict(sandbox)


def _command_json(state: CommandState) -> dict[str, Any]:
    fields = asdict(state)
    del fields["stdout"], fields["stderr"]
    fields["duration"] = fields.pop("duration_us") / 1e6
    return fields


def _error_json(error: DSecError) -> dict[str, Any]:
    return {
        "code": error.code,
        "message": error.message,
        "object": error.object,
        "retryable": error.retryable,
    }


def _result_json(
    command: Command, result: CommandResult, warnings: Sequence[str]
) -> dict[str, Any]:
    fields = asdict(result)
    del fields["stdout_bytes"], fields["stderr_bytes"]
    fields["error"] = _error_json(result.error) if result.error else None
    return {
        "sandbox_id": command.sandbox_id,
        **fields,
        "stdout": result.stdout,
        "stderr": result.stderr,
        "warnings": list(warnings),
    }


if __name__ == "__main__":
    sys.exit(main())

"""`dsec events` and `dsec top`: what happens, and what uses how much."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any

from ._cli_output import age, print_json, print_table
from ._client import DSecClient
from ._config import resolve
from ._sync_commands import call
from .errors import DSecError
from .models import Event, EventPage, NodeList, SandboxInfo, Usage

_WAIT_SECONDS = 20.0
_CLEAR = "\x1b[H\x1b[2J"
_AT_ONCE = 64

Add = Callable[..., argparse.ArgumentParser]


def add(add_command: Add) -> None:
    events = add_command(
        "events",
        _events,
        "print what has happened lately to your sandboxes and to the nodes",
        "dsec events",
        "dsec events --sandbox ID",
        "dsec events --trace TRACE -o json",
        "dsec events --follow",
    )
    events.add_argument("--trace", default="", metavar="T", help="only what has this trace id")
    events.add_argument("--sandbox", default="", metavar="ID", help="only what is of this sandbox")
    events.add_argument(
        "-f", "--follow", action="store_true", help="go on with what happens from now on"
    )
    top = add_command(
        "top",
        _top,
        "show the living sandboxes with what they use, and the nodes, again and again",
        "dsec top",
        "dsec top --interval 5",
        "dsec top --once -o json",
    )
    top.add_argument("--once", action="store_true", help="once, for scripts")
    top.add_argument(
        "--interval", type=_interval, default=2.0, metavar="S", help="seconds between two looks"
    )


def _interval(text: str) -> float:
    value = float(text)
    if not 0.1 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"{text} is not between 0.1 and 3600 seconds")
    return value


# ---- events


def _events(options: argparse.Namespace) -> int:
    after, wait, silent = "", 0.0, frozenset[str]()
    while True:
        page = _page(options, after, wait)
        if page.dropped:
            print(f"dsec: {page.dropped} older events are lost", file=sys.stderr)
        for edge in sorted(set(page.unreachable) - silent):
            print(f"dsec: worker '{edge}' does not answer", file=sys.stderr)
        for event in page.events:
            _print_event(event, options.output)
        sys.stdout.flush()
        after, silent = page.cursor, frozenset(page.unreachable)
        if page.events:
            continue
        if not options.follow:
            return 0
        wait = _WAIT_SECONDS


def _page(options: argparse.Namespace, after: str, wait: float) -> EventPage:
    return call(
        resolve(),
        lambda client: client.list_events(
            after=after, trace_id=options.trace, sandbox_id=options.sandbox, wait=wait
        ),
    )


def _print_event(event: Event, output: str) -> None:
    if output == "json":
        print(json.dumps(asdict(event), ensure_ascii=False))
        return
    at = datetime.fromtimestamp(event.unix_ms / 1000, timezone.utc)
    what = [f"{at:%Y-%m-%dT%H:%M:%S}.{event.unix_ms % 1000:03d}Z", f"{event.kind:<18}"]
    what += [f"{name}={value}" for name, value in _named(event) if value]
    print(" ".join(what).replace("\n", "\\n").rstrip())


def _named(event: Event) -> list[tuple[str, str]]:
    ended = event.kind == "command.ended"
    return [
        ("sandbox", event.sandbox_id),
        ("command", event.command_id),
        ("exit", str(event.exit_code) if ended else ""),
        ("cause", event.cause),
        ("trace", event.trace_id),
        ("detail", event.detail),
    ]


# ---- top


def _top(options: argparse.Namespace) -> int:
    before: dict[str, tuple[float, Usage]] = {}
    while True:
        nodes, seen = call(resolve(), _look)
        now = time.monotonic()
        if options.output == "json":
            print_json(_json(nodes, seen))
        else:
            if sys.stdout.isatty() and not options.once:
                print(_CLEAR, end="")
            _print_nodes(nodes)
            _print_sandboxes(seen, before, now)
        sys.stdout.flush()
        if options.once:
            return 0
        before = {sandbox.id: (now, usage) for sandbox, usage in seen if usage}
        time.sleep(options.interval)


Seen = list[tuple[SandboxInfo, "Usage | None"]]


async def _look(client: DSecClient) -> tuple[NodeList, Seen]:
    nodes = await client.list_nodes()
    sandboxes = [s for s in await client.list_sandboxes() if s.alive]
    room = asyncio.Semaphore(_AT_ONCE)

    async def usage_of(sandbox: SandboxInfo) -> Usage | None:
        async with room:
            try:
                return await client.get_usage(sandbox.id)
            except DSecError:  # it is not running yet, or any more
                return None

    return nodes, list(
        zip(sandboxes, await asyncio.gather(*map(usage_of, sandboxes)), strict=True)
    )


def _json(nodes: NodeList, seen: Seen) -> dict[str, Any]:
    return {
        **asdict(nodes),
        "sandboxes": [
            {**asdict(sandbox), "usage": asdict(usage) if usage else None}
            for sandbox, usage in seen
        ],
    }


def _print_nodes(nodes: NodeList) -> None:
    gib = 1 << 30
    for node in nodes.nodes:
        print(
            f"node {node.edge}: {node.sandboxes} sandboxes, {node.creates} creates wait, "
            f"{node.slots_ready} slots ready; memory {node.memory_available_bytes / gib:.1f} of "
            f"{node.memory_total_bytes / gib:.1f} GiB free, "
            f"limits {node.memory_admitted_bytes / gib:.1f}"
        )
        for reason in node.unhealthy:
            print(f"unhealthy: {reason}")
    for edge in nodes.unreachable:
        print(f"node {edge}: does not answer")
    print()


def _print_sandboxes(seen: Seen, before: dict[str, tuple[float, Usage]], now: float) -> None:
    head = ("SANDBOX", "PHASE", "IMAGE", "AGE", "COMMANDS", "TASKS", "MEMORY", "CPU", "%CPU")
    rows = []
    for sandbox, usage in seen:
        used = ("", "", "", "")
        if usage:
            used = (
                str(usage.tasks),
                f"{usage.memory_bytes / (1 << 20):.1f}M",
                f"{usage.cpu_usec / 1e6:.2f}s",
                _percent(usage, before.get(sandbox.id), now),
            )
        rows.append(
            (
                sandbox.id, sandbox.phase, sandbox.image, age(sandbox),
                str(sandbox.commands_running), *used,
            )
        )  # fmt: skip
    print_table(head, rows)


def _percent(usage: Usage, before: tuple[float, Usage] | None, now: float) -> str:
    if before is None:
        return ""
    at, earlier = before
    return f"{(usage.cpu_usec - earlier.cpu_usec) / 1e4 / max(now - at, 1e-3):.1f}"

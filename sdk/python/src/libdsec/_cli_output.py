"""How the `dsec` command prints values and tables."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence

from .models import SandboxInfo


def print_json(value: object) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    lines = [head, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    for line in lines:
        print(
            "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()
        )


def age(sandbox: SandboxInfo) -> str:
    end = sandbox.ended_unix_ms or time.time() * 1000
    seconds = max(0, int(end - sandbox.created_unix_ms) // 1000)
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"

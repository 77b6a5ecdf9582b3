#!/usr/bin/env python3
"""Real work in many sandboxes at once: each runs a package's own test suite.

The counts must be those of the same suite in a chroot.

Base debian-python:12, the workspace of <state>/demo-reference.json (written by
scripts/build-demo-images) and the toolkit pytest:8. Finds the daemon as libdsec does. Exits with 1
when a count differs.
"""

import argparse
import asyncio
import json
import os
import re
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from libdsec import DSecClient, DSecContainerRunArgs, DSecError

BASE, TOOLKIT = "debian-python:12", "pytest:8"
COUNTS = ("passed", "failed", "skipped")
SUITE_SECONDS = 600
CREATE_SECONDS = 300


@dataclass
class Row:
    sandbox: str = ""
    create_ms: float = 0.0
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    error: str = ""


def counts(output: str) -> dict[str, int]:
    """The numbers in pytest's last line, for example `12 passed, 1 skipped in 0.34s`."""
    last = next(
        (line for line in reversed(output.splitlines()) if re.search(r" in [\d.]+s", line)), ""
    )
    found = {name: int(number) for number, name in re.findall(r"(\d+) (\w+)", last)}
    found["failed"] = found.get("failed", 0) + found.get("error", 0) + found.get("errors", 0)
    return {name: found.get(name, 0) for name in COUNTS}


async def one(client: DSecClient, reference: dict) -> Row:
    row = Row()
    args = DSecContainerRunArgs(
        container_image=BASE,
        workspace=reference["workspace"],
        toolkits=[TOOLKIT],
        cpu_cores_limit=1,
        memory_limit_mb=512,
    )
    try:
        started = time.monotonic()
        async with await client.run_container(args, timeout=CREATE_SECONDS) as sandbox:
            row.create_ms = (time.monotonic() - started) * 1000
            row.sandbox = sandbox.id
            result = await sandbox.commands.run(
                reference["command"], cwd=reference["cwd"], timeout=SUITE_SECONDS
            )
        row.seconds = result.duration
        for name, number in counts(result.stdout).items():
            setattr(row, name, number)
        if result.timed_out or result.oom_killed:
            row.error = "timed out" if result.timed_out else "out of memory"
        elif result.exit_code not in (0, 1):  # 1: pytest ran, and tests failed
            row.error = (
                f"exit {result.exit_code}: {(result.stderr or result.stdout).strip()[-200:]}"
            )
    except DSecError as error:
        row.error = str(error)
    return row


async def all_at_once(count: int, reference: dict) -> list[Row]:
    async with DSecClient() as client:
        return await asyncio.gather(*(one(client, reference) for _ in range(count)))


def matches(row: Row, reference: dict) -> bool:
    return not row.error and all(getattr(row, name) == reference[name] for name in COUNTS)


def show(rows: list[Row], reference: dict, wall: float) -> None:
    form = "{:<26} {:>9} {:>7} {:>7} {:>8} {:>8}  {}"
    print(form.format("SANDBOX", "CREATE ms", "PASSED", "FAILED", "SKIPPED", "SECONDS", ""))
    for row in rows:
        note = row.error or ("" if matches(row, reference) else "differs")
        print(
            form.format(
                row.sandbox or "-", f"{row.create_ms:.1f}", row.passed, row.failed, row.skipped,
                f"{row.seconds:.2f}", note,
            )
        )  # fmt: skip
    total = {name: sum(getattr(row, name) for row in rows) for name in COUNTS}
    mean = sum(row.create_ms for row in rows) / len(rows)
    print(
        form.format(
            f"all {len(rows)}", f"{mean:.1f}", total["passed"], total["failed"], total["skipped"],
            f"{wall:.2f}", "create: mean; seconds: wall clock",
        )
    )  # fmt: skip
    print(form.format("chroot, once", "", *(reference[name] for name in COUNTS), "", ""))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=16, help="sandboxes at once (16)")
    parser.add_argument("--json", metavar="FILE", help="write the rows there too")
    options = parser.parse_args()
    if options.count < 1:
        parser.error("--count must be at least 1")
    file = Path(os.environ.get("DSEC_STATE") or "/var/lib/dsec") / "demo-reference.json"
    if not file.exists():
        print(f"demo: {file} is missing: scripts/build-demo-images makes it", file=sys.stderr)
        return 1
    reference = json.loads(file.read_text())
    started = time.monotonic()
    try:
        rows = asyncio.run(all_at_once(options.count, reference))
    except DSecError as error:
        print(f"demo: {error}", file=sys.stderr)
        return error.exit_code
    wall = time.monotonic() - started
    show(rows, reference, wall)
    if options.json:
        result = {"reference": reference, "seconds": wall, "rows": [asdict(row) for row in rows]}
        Path(options.json).write_text(json.dumps(result, indent=2) + "\n")
    good = sum(matches(row, reference) for row in rows)
    print(f"{good} of {len(rows)} sandboxes counted what the chroot did")
    return 0 if good == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())

"""protocol: no-ops (ping) through listener, gateway and actors, one on its way on each connection, in each encoding, over
one connection and over 1,000; and what an idle connection keeps in memory. One thread of a C++ client asks."""
import pathlib
import re

from runner import programs
from runner.errors import Unable
from runner.rows import Row, Series, row
from runner.worker import Worker
from runner.workshop import Workshop

ENCODINGS = ["binary", "packed", "text"]
MANY, QUICK_MANY = 1000, 200


def _memory(worker: Worker) -> int:
    """Bytes that the daemon alone would give back."""
    text = pathlib.Path(f"/proc/{worker.pid}/smaps_rollup").read_text()
    return sum(int(kib) for kib in re.findall(r"^Private_\w+:\s+(\d+) kB", text, re.MULTILINE)) * 1024


def _idle(shop: Workshop, worker: Worker, connections: int) -> Row:
    with programs.Staged([shop.program("measure"), "idle", *worker.where, str(connections)]) as clients:
        clients.until("ready")
        before = _memory(worker)
        clients.go_on()
        clients.until("connected")
        each = (_memory(worker) - before) / connections / 1024
        clients.go_on()
        clients.finish()
    return row("protocol.idle_memory", Series([[each]], clients.figures.failed),
               f"private memory of dsecd per connection that has said hello and nothing since, over {connections}", unit="KiB")


def _no_ops(shop: Workshop, worker: Worker, connections: int, encoding: str, seconds: int) -> list[Row]:
    figures = programs.run([shop.program("measure"), "no_ops", *worker.where, str(seconds), str(connections), encoding])
    if not figures.all(""):
        raise Unable(f"no no-op was answered: {figures.failed} attempts failed")
    series = Series([figures.all("")], figures.failed)
    name = f"protocol.{encoding}.{connections}"
    over = f"over {connections} connection{'s' if connections > 1 else ''}, {encoding}"
    return [
        row(name, series, f"a no-op there and back, one on its way on each, {over}"),
        row(f"{name}.rate", series, f"no-ops per second, {over}", value=figures.one("rate"), unit="1/s"),
    ]


def measure(shop: Workshop) -> list[Row]:
    many = QUICK_MANY if shop.quick else MANY
    seconds = 2 if shop.quick else 10
    with shop.worker() as worker:
        rows = [_idle(shop, worker, many)]
        for connections in (1, many):
            for encoding in ENCODINGS:
                rows += _no_ops(shop, worker, connections, encoding, seconds)
    return rows

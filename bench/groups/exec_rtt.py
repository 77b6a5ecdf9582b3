"""exec_rtt: one exec of a dynamic true in a running sandbox, there and back, against a bare vfork + exec + wait of the
same program. Blocks of all subjects alternate; a subject's value is the p50 of its best block, its p99 that of all
blocks together."""
from runner.images import PROGRAM
from runner.rows import Row, Series, percentile, row
from runner.worker import Worker
from runner.workshop import PYTHON, ROOT, Workshop

OVER_BARE_MS = 0.8
LIBDSEC_OVER_BARE_MS = 1.5
P99_TIMES_BARE = 4


def _subjects(shop: Workshop, worker: Worker) -> dict[str, list[str]]:
    count = "100" if shop.quick else "400"
    where = [*worker.where, count]
    what = [*worker.layers.references, PROGRAM]
    return {
        "bare": [shop.program("floor"), "spawn", count, PROGRAM],
        "ws": [shop.program("measure"), "exec_rtt", *where, *what],
        "libdsec": [PYTHON, str(ROOT / "bench" / "libdsec_rtt.py"), *where, *what],
        "gateway": [shop.program("measure"), "ping", *where],
        "listener": [shop.program("ws_echo"), count],
    }


def measure(shop: Workshop) -> list[Row]:
    with shop.worker() as worker:
        subjects = _subjects(shop, worker)
        series = {name: Series() for name in subjects}
        for _ in range(4 if shop.quick else 8):
            for name, arguments in subjects.items():
                shop.samples(arguments, series[name])
    bare = series["bare"].best_p50
    return [
        row("exec_rtt.bare", series["bare"], "vfork + exec + wait on the host"),
        row("exec_rtt.ws", series["ws"], f"C++ client over WebSocket; target bare + {OVER_BARE_MS} ms",
            at_most=bare + OVER_BARE_MS),
        row("exec_rtt.ws_p99", series["ws"], f"p99 of the same; target {P99_TIMES_BARE} x bare's p50, both of all blocks",
            value=series["ws"].p99, at_most=P99_TIMES_BARE * percentile(series["bare"].all, 0.5)),
        row("exec_rtt.libdsec", series["libdsec"], "Python, commands.run of a synchronous Sandbox; target bare + "
            f"{LIBDSEC_OVER_BARE_MS} ms", at_most=bare + LIBDSEC_OVER_BARE_MS),
        row("exec_rtt.gateway", series["gateway"], "a no-op through listener, gateway and actors, for comparison"),
        row("exec_rtt.listener", series["listener"], "a frame to the listener's callback and back, for comparison"),
    ]

"""churn: whole lives one after another, create + exec + kill, sustained for a minute by as many clients as give the
best rate. The floor does the same by raw system calls, with as many processes as give it its best rate, and uses
nothing twice either. On both sides the time counts until nothing is left: control groups, files, network namespaces."""
import time

from runner import memory, programs
from runner.images import PROGRAM
from runner.rows import Row, Series, row
from runner.worker import UNNOTICED_NAMESPACES, Worker
from runner.workshop import Workshop

SHARE_OF_FLOOR = 0.7
P99_TIMES_P50 = 3
CONCURRENCY = [1, 2, 3, 4, 6]
LEFT_SECONDS = 30  # how long what is left may take to go


class Subject:
    """One side: runs for some seconds at some concurrency."""

    def __init__(self, arguments, await_clean) -> None:
        self._arguments = arguments
        self._await_clean = await_clean
        self.cycles = Series()
        self.first = Series()
        self.seconds = 0.0
        self.concurrency = 0

    def run(self, seconds: int, concurrency: int) -> tuple[programs.Figures, float]:
        """What it said, and for how long it took machine time."""
        figures = programs.run(self._arguments(str(seconds), str(concurrency)))
        ended = time.monotonic()
        if not self._await_clean():
            figures.failed += 1
        return figures, figures.one("elapsed") / 1e3 + time.monotonic() - ended

    def choose(self, seconds: int) -> None:
        rates = {}
        for concurrency in CONCURRENCY:
            figures, took = self.run(seconds, concurrency)
            rates[concurrency] = len(figures.all("cycle")) / took
        self.concurrency = max(rates, key=rates.get)
        print("  rates by concurrency: " + ", ".join(f"{c}: {r:.0f}/s" for c, r in rates.items()), flush=True)

    def measure(self, seconds: int) -> None:
        figures, took = self.run(seconds, self.concurrency)
        self.seconds += took
        self.cycles.blocks.append(figures.all("cycle"))
        self.cycles.failed += figures.failed
        self.first.blocks.append(figures.all("first"))

    @property
    def rate(self) -> float:
        return len(self.cycles.all) / self.seconds


def _floor(shop: Workshop, worker: Worker) -> Subject:
    namespaces = memory.net_namespaces()

    def await_clean() -> bool:
        deadline = time.monotonic() + LEFT_SECONDS
        while memory.net_namespaces() > namespaces + UNNOTICED_NAMESPACES:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    return Subject(lambda seconds, workers: [shop.program("floor"), "churn", seconds, workers, shop.disk("churn"), PROGRAM,
                                             *worker.layers.blobs], await_clean)


def _dsecd(shop: Workshop, worker: Worker) -> Subject:
    return Subject(lambda seconds, clients: [shop.program("measure"), "churn", *worker.where, seconds, clients,
                                             *worker.layers.references, PROGRAM],
                   lambda: worker.await_clean(LEFT_SECONDS))


def measure(shop: Workshop) -> list[Row]:
    seconds, probe = (6, 2) if shop.quick else (60, 5)
    with shop.worker(max_sandboxes=256) as worker:
        floor, dsecd = _floor(shop, worker), _dsecd(shop, worker)
        floor.choose(probe)
        dsecd.choose(probe)
        floor.measure(seconds // 2)
        dsecd.measure(seconds)
        floor.measure(seconds // 2)
    p50, p99 = dsecd.cycles.p50, dsecd.cycles.p99
    return [
        row("churn.dsecd", dsecd.cycles, f"create + exec + stop by {dsecd.concurrency} C++ clients for {seconds} s and "
            f"until nothing is left; p50, p99: one such life, ms; target {SHARE_OF_FLOOR} x the floor's rate",
            value=dsecd.rate, unit="/s", at_least=SHARE_OF_FLOOR * floor.rate),
        row("churn.p99", dsecd.cycles, f"of the same lives; target {P99_TIMES_P50} x their p50", value=p99,
            at_most=P99_TIMES_P50 * p50),
        row("churn.first", dsecd.first, "of the same lives: create to the command's result, under this load"),
        row("churn.floor", floor.cycles, f"the same by raw system calls, all made anew and removed, {floor.concurrency} "
            "processes; half of it before dsecd, half after", value=floor.rate, unit="/s"),
    ]

"""create_many: 1,000 sandboxes by one call of libdsec. On a worker that keeps 500 slots made ahead, so that half of
them find theirs made and half do not; and on a worker that takes 500 at once, where the rest waits its turn while
another client stops those that run."""
import time

from runner import programs
from runner.errors import Unable
from runner.rows import Row, Series, row
from runner.workshop import PYTHON, ROOT, Workshop

COUNT, QUICK_COUNT = 1000, 100
READY_SECONDS = 120


def _await_ready(worker, slots: int) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while worker.groups() < slots:
        if time.monotonic() > deadline:
            raise Unable(f"dsecd has made {worker.groups()} of {slots} slots ahead")
        time.sleep(0.1)


def _call(shop: Workshop, count: int, *more: str, ready: int, **node: object) -> programs.Figures:
    with shop.worker(memory_overcommit=100.0, slot_pool=ready, **node) as worker:
        _await_ready(worker, ready)
        return programs.run([PYTHON, str(ROOT / "bench" / "libdsec_create_many.py"), *worker.where, str(count),
                             *worker.layers.references, *more])


def measure(shop: Workshop) -> list[Row]:
    count = QUICK_COUNT if shop.quick else COUNT
    pool = count // 2
    made = _call(shop, count, ready=pool, max_sandboxes=count)
    queued = _call(shop, count, "--stop-meanwhile", ready=8, max_sandboxes=pool)

    def series(figures: programs.Figures, name: str) -> Series:
        return Series([figures.all(name)], figures.failed)

    return [
        row("create_many.ready", series(made, "ready"), f"{count} in one call of AsyncSandbox.create_many, {pool} slots made "
            f"ahead; from the call until an item runs; all after {made.one('elapsed') / 1e3:.1f} s; none given twice, none "
            "more than asked for"),
        row("create_many.item", series(made, "item"), "of the same: from an item's own request, of which 192 are on their "
            "way at once"),
        row("create_many.queued", series(queued, "ready"), f"{count} in one call on a worker that takes {pool}, while "
            f"another client stops what runs; all after {queued.one('elapsed') / 1e3:.1f} s"),
    ]

"""density: 3,200 idle sandboxes alive on one worker, each of which has run a command and then runs another. What each
takes of the host's memory, how the rate of making them falls from the 300th to the 3,000th (the floor makes as many, by
raw system calls), and how long it takes to stop all of them."""
import dataclasses
import time

from runner import memory
from runner.images import PROGRAM
from runner.programs import Staged
from runner.rows import Row, Series, percentile, row
from runner.worker import Worker
from runner.workshop import Workshop

COUNT, QUICK_COUNT = 3200, 320
# Shares of all that are made: the rate "at 300" is that of numbers 100 to 500 of 3,200, "at 3,000" of the last 400.
EARLY, LATE = (1 / 32, 5 / 32), (28 / 32, 1)
PARTS = 20  # of each window; its rate is the median over them, so that what others do for a moment does not count
CONCURRENCY = 2  # of clients, and of the floor's processes
MIB_EACH = 0.7
POINTS_OVER_FLOOR = 5
STOP_SECONDS = 20
SPARE_SLOTS = 64
IDLE_SECONDS = 15  # until a sandbox counts as idle: it gives back what only commands need


@dataclasses.dataclass
class Made:
    """How making them went."""
    took: Series
    early: float  # per second
    late: float

    @property
    def decay(self) -> float:
        """Percentage points."""
        return 100 * (1 - self.late / self.early)

    def rates(self) -> str:
        return f"{self.early:.0f} -> {self.late:.0f} per s"


def _made(staged: Staged, count: int) -> Made:
    lines = staged.figures.by_name["made"]
    done = sorted(at for at, _ in lines)

    def rate(window: tuple[float, float]) -> float:
        first, last = (min(len(done), int(share * count)) - 1 for share in window)
        step = max(1, (last - first) // PARTS)
        return percentile([step / (done[i + step] - done[i]) * 1e3 for i in range(first, last - step + 1, step)], 0.5)

    return Made(Series([[took for _, took in lines]], staged.figures.failed), rate(EARLY), rate(LATE))


def _floor(shop: Workshop, worker: Worker, count: int) -> tuple[Made, dict[str, float], float]:
    with Staged([shop.program("floor"), "density", str(count), str(CONCURRENCY), shop.disk("density"), PROGRAM,
                 *worker.layers.blobs]) as staged:
        staged.until("ready")
        before = memory.look()
        staged.go_on()
        staged.until("live")
        after = memory.look()
        staged.go_on()
        staged.finish()
    return _made(staged, count), memory.each(before, after, count), staged.figures.one("stopped") / 1e3


@dataclasses.dataclass
class Seen:
    """One run of dsecd."""
    made: Made
    second: Series
    memory: dict[str, float]             # KiB each, of the host
    processes: dict[str, float]          # KiB each, anonymous, by process
    stopped: float                       # s, to the last answer
    clean: float | None                  # s, until nothing was left


def _dsecd(shop: Workshop, worker: Worker, count: int) -> Seen:
    def processes() -> dict[str, int]:
        return {name: memory.resident(pid)["anonymous"] for name, pid in pids.items()}

    pids = {"dsecd": worker.pid, "launcher": worker.launcher}
    with Staged([shop.program("measure"), "density", *worker.where, str(count), str(CONCURRENCY),
                 *worker.layers.references, PROGRAM]) as staged:
        staged.until("ready")
        before, own_before = memory.look(), processes()
        staged.go_on()
        staged.until("live")
        time.sleep(IDLE_SECONDS)
        after, own_after = memory.look(), processes()
        made = _made(staged, count)
        staged.go_on()
        staged.until("answered")
        staged.go_on()
        began = time.monotonic()
        staged.finish()
        clean = time.monotonic() - began if worker.await_clean(10 * STOP_SECONDS) else None
    failed = staged.figures.failed
    return Seen(made, Series([staged.figures.all("second")], failed), memory.each(before, after, count),
                {name: (own_after[name] - own_before[name]) / count for name in pids},
                staged.figures.one("stopped") / 1e3, clean)


def measure(shop: Workshop) -> list[Row]:
    count = QUICK_COUNT if shop.quick else COUNT
    # Limits are no use of memory: how far they may add up is the operator's choice.
    with shop.worker(max_sandboxes=count + SPARE_SLOTS, memory_overcommit=100.0) as worker:
        floor, floor_memory, floor_stopped = _floor(shop, worker, count)
        seen = _dsecd(shop, worker, count)
    nothing_left = Series([[seen.stopped]], 0 if seen.clean is not None else 1)
    mib = seen.memory["used"] / 1024
    return [
        row("density.answered", seen.second, f"of {count} sandboxes alive at once, each of which had run a command before; "
            "p50, p99: the second one, ms", value=len(seen.second.all), unit="sandboxes", at_least=count),
        row("density.memory", seen.made.took, "MemTotal - MemFree after drop_caches, before and while all live, by "
            f"{count}, idle for {IDLE_SECONDS} s; {memory.describe(seen.memory)}; p50, p99: create and first exec, ms", value=mib, unit="MiB each",
            at_most=MIB_EACH),
        *(row(f"density.memory_{name}", seen.made.took, "anonymous memory of the process, part of the above", value=kib,
              unit="KiB each") for name, kib in seen.processes.items()),
        row("density.memory_floor", floor.took, f"the floor's, measured alike; {memory.describe(floor_memory)}",
            value=floor_memory["used"] / 1024, unit="MiB each"),
        row("density.decay", seen.made.took, f"of the rate of create + exec, {CONCURRENCY} clients, from the 300th to the "
            f"3,000th of 3,200 ({seen.made.rates()}); target the floor's + {POINTS_OVER_FLOOR}", value=seen.made.decay,
            unit="points", at_most=max(0.0, floor.decay) + POINTS_OVER_FLOOR),
        row("density.decay_floor", floor.took, f"the floor's, {CONCURRENCY} processes ({floor.rates()})",
            value=floor.decay, unit="points"),
        row("density.stop", nothing_left, f"all stopped, by 8 clients, and nothing left (answered after {seen.stopped:.1f} "
            f"s; the floor: {floor_stopped:.1f} s)", value=seen.clean or 10 * STOP_SECONDS, unit="s", at_most=STOP_SECONDS),
    ]

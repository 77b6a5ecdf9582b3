"""Rows of results and the arithmetic behind them."""
import dataclasses
import math

from runner import host


@dataclasses.dataclass
class Row:
    name: str  # group.metric
    value: float
    unit: str
    target: float | None  # what value is held against; None for peers and for what explains other rows
    bound: str | None     # how: "at most" or "at least"
    holds: bool
    how: str
    n: int
    p50: float | None
    p99: float | None
    success: float  # share of the attempts that succeeded
    loadavg: float = dataclasses.field(default_factory=host.load_average)
    machine: str = dataclasses.field(default_factory=host.machine)

    def as_dict(self) -> dict:
        return dataclasses.asdict(self)


def percentile(values: list[float], share: float) -> float:
    """Nearest rank: the smallest value that is not exceeded by `share` of all."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


@dataclasses.dataclass
class Series:
    """What one subject gave, block by block."""
    blocks: list[list[float]] = dataclasses.field(default_factory=list)
    failed: int = 0

    @property
    def all(self) -> list[float]:
        return [value for block in self.blocks for value in block]

    @property
    def best_p50(self) -> float:
        """The p50 of the best block. Blocks of all subjects alternate, so noise, which only adds, hits all alike."""
        return min(percentile(block, 0.5) for block in self.blocks)

    @property
    def p50(self) -> float | None:
        return percentile(self.all, 0.50) if self.all else None

    @property
    def p99(self) -> float | None:
        return percentile(self.all, 0.99) if self.all else None

    @property
    def success(self) -> float:
        return len(self.all) / max(1, len(self.all) + self.failed)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def row(name: str, series: Series, how: str, *, value: float | None = None, at_most: float | None = None,
        at_least: float | None = None, unit: str = "ms") -> Row:
    """A row whose value is the series' best p50 unless given; n, p50, p99 and success are the series'. Without a target
    it holds when every attempt succeeded."""
    value = series.best_p50 if value is None else value
    reached = (at_most is None or value <= at_most) and (at_least is None or value >= at_least)
    bound = "at most" if at_most is not None else "at least" if at_least is not None else None
    return Row(name=name, value=round(value, 4), unit=unit, target=_rounded(at_least if at_most is None else at_most),
               bound=bound, holds=series.failed == 0 and reached, how=how, n=len(series.all),
               p50=_rounded(series.p50), p99=_rounded(series.p99), success=round(series.success, 4))


def print_rows(rows: list[Row]) -> None:
    for r in rows:
        target = "" if r.target is None else f" ({r.bound} {r.target:g})"
        spread = "" if r.p50 is None else f"p50 {r.p50:.3f}, p99 {r.p99:.3f}, "
        mark = "ok  " if r.holds else "MISS"
        print(f"{mark} {r.name:28} {r.value:9.3f} {r.unit}{target}; {spread}n {r.n}, success {r.success:.1%}; {r.how}",
              flush=True)

"""Rows of results and the arithmetic behind them."""
import dataclasses
import math

from runner import host


@dataclasses.dataclass
class Row:
    name: str  # group.metric
    value: float
    unit: str
    target: float | None  # what value must not exceed; None for peers
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
    def p50(self) -> float:
        return percentile(self.all, 0.50)

    @property
    def p99(self) -> float:
        return percentile(self.all, 0.99)

    @property
    def success(self) -> float:
        return len(self.all) / max(1, len(self.all) + self.failed)


def row(name: str, series: Series, how: str, *, value: float | None = None, at_most: float | None = None,
        unit: str = "ms") -> Row:
    """A row whose value is the series' best p50 unless given. Without a target it holds when it was measured."""
    value = series.best_p50 if value is None else value
    complete = series.failed == 0
    return Row(name=name, value=round(value, 4), unit=unit, target=None if at_most is None else round(at_most, 4),
               holds=complete and (at_most is None or value <= at_most), how=how, n=len(series.all),
               p50=round(series.p50, 4), p99=round(series.p99, 4), success=round(series.success, 4))


def print_rows(rows: list[Row]) -> None:
    for r in rows:
        target = "" if r.target is None else f" (target {r.target:g})"
        mark = "ok  " if r.holds else "MISS"
        print(f"{mark} {r.name:28} {r.value:9.3f} {r.unit}{target}; p50 {r.p50:.3f}, p99 {r.p99:.3f}, n {r.n}, "
              f"success {r.success:.0%}; {r.how}", flush=True)

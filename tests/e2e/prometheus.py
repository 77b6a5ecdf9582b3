"""A strict reader of Prometheus' text format (exposition format 0.0.4): what promtool and the
server would refuse is an error here. And the page itself.
"""

from __future__ import annotations

import math
import re
import urllib.request
from dataclasses import dataclass, field

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
SAMPLE = re.compile(rf"({NAME})(?:\{{(.*)\}})? (\S+)")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')
HELP = re.compile(rf"# HELP ({NAME}) (.+)")
TYPE = re.compile(rf"# TYPE ({NAME}) (counter|gauge|histogram)")
SUFFIXES = {"counter": ("",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}

Labels = tuple[tuple[str, str], ...]


DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def fetch(port: int) -> str:
    """The page of a daemon on loopback."""
    with DIRECT.open(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        return answer.read().decode()


@dataclass
class Family:
    help: str
    type: str
    samples: dict[tuple[str, Labels], float] = field(default_factory=dict)


def _labels(text: str) -> Labels:
    found, at = [], 0
    while at < len(text):
        match = LABEL.match(text, at)
        assert match, f"not a label: {text[at:]!r}"
        found.append((match[1], re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), match[2])))
        at = match.end()
    assert len({name for name, _ in found}) == len(found), f"a label twice: {text}"
    return tuple(found)


def _check_histogram(name: str, family: Family) -> None:
    rows: dict[Labels, list[tuple[float, float]]] = {}
    for (sample, labels), value in family.samples.items():
        if sample == f"{name}_bucket":
            bound = dict(labels)["le"]
            rest = tuple(pair for pair in labels if pair[0] != "le")
            rows.setdefault(rest, []).append((float(bound), value))
    for labels, buckets in rows.items():
        bounds = [bound for bound, _ in buckets]
        counts = [count for _, count in buckets]
        assert bounds == sorted(set(bounds)), f"{name}{labels}: buckets out of order"
        assert bounds[-1] == math.inf, f"{name}{labels}: no bucket +Inf"
        assert counts == sorted(counts), f"{name}{labels}: buckets are not cumulative"
        assert counts[-1] == family.samples[(f"{name}_count", labels)]
        assert (f"{name}_sum", labels) in family.samples


def parse(text: str) -> dict[str, Family]:
    """Families by name. AssertionError names what is wrong."""
    assert text.endswith("\n"), "the last line does not end"
    families: dict[str, Family] = {}
    helped: str | None = None
    current = ""
    for line in text.splitlines():
        if help_line := HELP.fullmatch(line):
            assert help_line[1] not in families, f"{help_line[1]} stands twice"
            helped, current = help_line[1], help_line[2]
            continue
        if type_line := TYPE.fullmatch(line):
            assert helped == type_line[1], f"{type_line[1]} has no HELP"
            families[helped] = Family(current, type_line[2])
            continue
        match = SAMPLE.fullmatch(line)
        assert match, f"not a line of the format: {line!r}"
        assert helped is not None, f"{line!r} stands before any family"
        family = families[helped]
        allowed = {helped + suffix for suffix in SUFFIXES[family.type]}
        assert match[1] in allowed, f"{match[1]} stands in the family {helped}"
        key = (match[1], _labels(match[2] or ""))
        assert key not in family.samples, f"{key} stands twice"
        family.samples[key] = float(match[3])
    for name, family in families.items():
        if family.type == "histogram":
            _check_histogram(name, family)
    return families

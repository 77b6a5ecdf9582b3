"""How much memory of the host is in use, as honestly as it can be said: everything that is not free after the kernel
was made to drop what it can. MemAvailable would count slab objects that living mounts pin as if they could be dropped;
and what is allocated page by page (control groups, per-CPU counters, pipes) shows in no sum of named parts."""
import os
import pathlib
import time

PARTS = ["AnonPages", "SUnreclaim", "SReclaimable", "KernelStack", "PageTables", "Percpu", "Shmem"]
SETTLED_KIB = 512
TRIES = 8


def _meminfo() -> dict[str, int]:
    lines = pathlib.Path("/proc/meminfo").read_text().splitlines()
    return {line.split(":")[0]: int(line.split()[1]) for line in lines}


def look() -> dict[str, int]:
    """KiB: `used`, `MemAvailable` and the named parts. Takes seconds: until two readings agree."""
    before = None
    for _ in range(TRIES):
        os.sync()
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
        time.sleep(1)
        now = _meminfo()
        now["used"] = now["MemTotal"] - now["MemFree"]
        if before is not None and abs(now["used"] - before["used"]) < SETTLED_KIB:
            break
        before = now
    return now


def each(before: dict[str, int], after: dict[str, int], count: int) -> dict[str, float]:
    """KiB per sandbox."""
    return {name: (after[name] - before[name]) / count for name in ["used", "MemAvailable", *PARTS]}


def describe(parts: dict[str, float]) -> str:
    named = ", ".join(f"{name} {parts[name]:.0f}" for name in PARTS)
    rest = parts["used"] - sum(parts[name] for name in PARTS)
    return f"KiB each: {named}, other {rest:.0f}; MemAvailable fell by {-parts['MemAvailable']:.0f}"


def resident(pid: int) -> dict[str, int]:
    """KiB of one process: all of it, and what is its alone."""
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    values = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith("Rss") or line.startswith("VmRSS")}
    return {"rss": int(values["VmRSS"]), "anonymous": int(values["RssAnon"])}


def net_namespaces() -> int:
    """Roughly: the slab allocator counts what its per-CPU lists keep as well."""
    for line in pathlib.Path("/proc/slabinfo").read_text().splitlines():
        if line.startswith("net_namespace "):
            return int(line.split()[1])
    return 0

"""The machine that is measured on: what it is, and whether it is quiet enough."""
import os
import pathlib
import time

from runner.errors import Unable

QUIET_SHARE = 0.15  # of all CPUs; what others use above this moves the figures
WATCH_SECONDS = 2.0


def machine() -> str:
    model = next((line.split(":", 1)[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), "unknown CPU")
    memory_kib = next(int(line.split()[1]) for line in pathlib.Path("/proc/meminfo").read_text().splitlines()
                      if line.startswith("MemTotal"))
    return f"{os.cpu_count()} x {model}, {memory_kib / 2**20:.0f} GiB, Linux {os.uname().release}"


def load_average() -> float:
    return os.getloadavg()[0]


def busy_share() -> float:
    """The share of all CPUs that is not idle, watched for a moment."""
    def times() -> tuple[int, int]:
        fields = [int(f) for f in pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        return sum(fields), fields[3] + fields[4]

    total, idle = times()
    time.sleep(WATCH_SECONDS)
    total_after, idle_after = times()
    return 1 - (idle_after - idle) / max(1, total_after - total)


def refuse_if_busy(force: bool) -> None:
    """Looks after everything is built, since building is load of our own."""
    busy = busy_share()
    print(f"load average: {' '.join(f'{l:.2f}' for l in os.getloadavg())}; busy right now: {busy:.0%}", flush=True)
    if busy > QUIET_SHARE and not force:
        raise Unable(f"the machine is busy ({busy:.0%} of its CPUs, the limit is {QUIET_SHARE:.0%}); "
                     "wait, or measure all the same with --force")

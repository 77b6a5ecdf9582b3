"""tricks: what each of the tricks saves that make a sandbox cheap, by itself: its step with it and without, in alternating
blocks. No targets: the rows explain docs/adr/0016-cheap-tricks.md and say whether that still holds on another machine."""
from runner.images import PROGRAM
from runner.rows import Row, Series, row
from runner.workshop import Workshop

# What is timed, by the name that the program `tricks` knows it by.
TIMED = {
    "no_libc": "vfork, exec and wait of a static program that ends at once: without a C library, or on it",
    "shared_memory": "a child in a pid namespace that ends at once: on our memory (vfork), or on a copy of it",
    "shared_table": "a child of a process with 1,500 descriptors: takes the low end of the table, or all",
    "own_attach": "a child in its groups: cloned there and \"0\" written to tasks, or its pid to cgroup.procs",
    "parked_init": "create to the command's result: PID 1 waits with its own mounts made, or is cloned then",
    "slots_ahead": "create to the command's result: namespaces and directory made before, or then",
    "groups_ahead": "create to the command's result: groups made before, or then",
    "trash": "a writable layer goes: renamed away, or deleted",
    "no_pivot": "a process enters its tree: setns to the topmost mount, or pivot_root and unmount",
    "template_namespace": "a mount namespace of one's own: copy of one mount, or of 1,000 attached layers",
    "skeleton_dev": "/dev: from the lowest layer, or a tmpfs with nodes",
    "shared_sys": "/sys: a copy of one mount, or sysfs of the sandbox's own network",
    "shared_shm": "/dev/shm: an id-mapped directory of one tmpfs, or a tmpfs",
    "late_pts": "/dev/pts: not before a terminal is wanted, or with the sandbox",
    "volatile_overlay": "the end of an overlay after 4 MiB of a neighbour's writes: volatile, or not",
}
HELD = ["no_libc", "skeleton_dev", "shared_sys", "shared_shm", "late_pts"]  # of these the memory is measured too
SIDES = {True: "with", False: "without"}


class Pair:
    """One trick: both sides."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.sides = {True: Series(), False: Series()}

    def rows(self, name: str, unit: str = "ms", count: str = "") -> list[Row]:
        with_it, without = (self.sides[side].best_p50 for side in (True, False))
        return [row(f"tricks.{name}", self.sides[True], f"{self.what}{count}; saves {without - with_it:.3f} {unit}", unit=unit),
                row(f"tricks.{name}.without", self.sides[False], "the second of the two", unit=unit)]


def measure(shop: Workshop) -> list[Row]:
    blocks, count, kept = (8, 12, 500) if shop.quick else (8, 50, 1000)
    pairs = {name: Pair(what) for name, what in TIMED.items()}
    held = {name: Pair(TIMED[name]) for name in HELD}

    def run(what: str, name: str, count: int, pair: Pair) -> None:
        for side, word in SIDES.items():
            shop.samples([shop.program("tricks"), what, name, word, str(count), shop.disk("tricks"), PROGRAM,
                          *worker.layers.blobs], pair.sides[side])

    with shop.worker() as worker:
        for _ in range(blocks):
            for name, pair in pairs.items():
                run("time", name, count, pair)
        for name, pair in held.items():
            run("hold", name, kept, pair)
    rows = [each for name, pair in pairs.items() for each in pair.rows(name)]
    for name, pair in held.items():
        rows += pair.rows(f"{name}.memory", "KiB", f", each of {kept} that are kept, as charged to a memory group")
    return rows

"""create_exec: from a create request to the first command's result, cached layers, one at a time.

Blocks of all subjects alternate; a subject's value is the p50 of its best block. Before every block the machine's
other half of the work (teardown of the block before) has settled, since each block ends with its own clean-up.
"""
from runner import peers
from runner.images import PROGRAM
from runner.rows import Row, Series, row
from runner.worker import Worker
from runner.workshop import Workshop

FLOOR_SHARE_OF_BWRAP = 0.45
TIMES_FLOOR = 1.4


def _subjects(shop: Workshop, worker: Worker) -> dict[str, list[str]]:
    count, slow = (30, 5) if shop.quick else (100, 10)
    floor = shop.program("floor")
    rootfs = shop.trees["base"]
    spawn = [floor, "spawn", str(count)]
    subjects = {
        "dsecd": [shop.program("measure"), "create_exec", *worker.where, str(count), *worker.layers.references, PROGRAM],
        "floor": [floor, "create", str(count), shop.disk("floor"), PROGRAM, *worker.layers.blobs],
        "bwrap": [*spawn, *peers.bwrap()],
        "runc": [floor, "spawn", str(slow), *peers.runc(shop.scratch, rootfs, PROGRAM)],
    }
    docker, reason = peers.docker(rootfs, PROGRAM)
    if docker is None:
        print(f"docker is left out: {reason}", flush=True)
    else:
        subjects["docker"] = [floor, "spawn", "3", *docker]
    return subjects


def measure(shop: Workshop) -> list[Row]:
    with shop.worker() as worker:
        subjects = _subjects(shop, worker)
        series = {name: Series() for name in subjects}
        try:
            for _ in range(4 if shop.quick else 8):
                for name, arguments in subjects.items():
                    shop.samples(arguments, series[name])
        finally:
            if "docker" in subjects:
                peers.remove_docker_image()
    floor, bwrap = series["floor"].best_p50, series["bwrap"].best_p50
    rows = [
        row("create_exec.dsecd", series["dsecd"], "C++ client over WebSocket: create, then exec of a dynamic true; "
            f"p50 of the best block; target {TIMES_FLOOR} x the floor", at_most=TIMES_FLOOR * floor),
        row("create_exec.floor", series["floor"], "raw system calls for the same sandbox and command; "
            f"valid up to {FLOOR_SHARE_OF_BWRAP} x bwrap", at_most=FLOOR_SHARE_OF_BWRAP * bwrap),
        row("create_exec.bwrap", series["bwrap"], " ".join(peers.BWRAP)),
        row("create_exec.runc", series["runc"], "runc run of the base layer, default spec"),
    ]
    if "docker" in series:
        rows.append(row("create_exec.docker", series["docker"], "docker run --rm --network none"))
    return rows

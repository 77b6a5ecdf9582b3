"""roles: the same requests through a coordinator and its worker, and to one process. Blocks of both alternate; a value is
the p50 of the best block."""
from runner.images import PROGRAM
from runner.rows import Row, Series, row
from runner.workshop import Workshop

TIMES_ALL = 1.2
OVER_ALL_MS = 0.5


def measure(shop: Workshop) -> list[Row]:
    creates, execs = ("20", "100") if shop.quick else ("100", "400")
    with shop.worker() as alone, shop.cluster() as (coordinator, worker):
        measuring = shop.program("measure")
        subjects = {}
        for name, door, layers in (("all", alone, alone.layers), ("coordinator", coordinator, worker.layers)):
            what = [*layers.references, PROGRAM]
            subjects[f"create.{name}"] = [measuring, "create_exec", *door.where, creates, *what]
            subjects[f"exec.{name}"] = [measuring, "exec_rtt", *door.where, execs, *what]
            subjects[f"ping.{name}"] = [measuring, "ping", *door.where, execs]
        series = {name: Series() for name in subjects}
        for _ in range(4 if shop.quick else 8):
            for name, arguments in subjects.items():
                shop.samples(arguments, series[name])
    create, exec_ = series["create.all"].best_p50, series["exec.all"].best_p50
    return [
        row("roles.create.all", series["create.all"], "create, then exec, with --role=all"),
        row("roles.create", series["create.coordinator"], "the same through coordinator and worker; target "
            f"{TIMES_ALL} x that", at_most=TIMES_ALL * create),
        row("roles.exec.all", series["exec.all"], "exec of a dynamic true, with --role=all"),
        row("roles.exec", series["exec.coordinator"], "the same through coordinator and worker; target that "
            f"+ {OVER_ALL_MS} ms", at_most=exec_ + OVER_ALL_MS),
        row("roles.ping.all", series["ping.all"], "a no-op, with --role=all"),
        row("roles.ping", series["ping.coordinator"], "a no-op, answered by the coordinator, for comparison"),
    ]

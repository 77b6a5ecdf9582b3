"""recovery: kill -9 of dsecd while 500 sandboxes live and commands run in 100 of them, and its start right afterwards:
from the kill until all are served. And the output of one command, read while dsecd is killed ten times."""
import hashlib
import subprocess
import time

from runner import programs
from runner.images import PROGRAM
from runner.rows import Row, Series, row
from runner.worker import Worker
from runner.workshop import Workshop

SERVED_SECONDS = 2
STREAM_CAP = 1 << 30  # of which half can be read while the command runs: more than it writes
# The last number, and how often dsecd is killed: 500 MB and 79 MB of text.
STREAM, QUICK_STREAM = (56_790_124, 10), (10_000_000, 3)
PIECE = 1 << 20


def _kill_and_serve(shop: Workshop, count: int, running: int) -> programs.Figures:
    measure = shop.program("measure")
    with shop.worker(max_sandboxes=count + 64, memory_overcommit=100.0) as worker:
        filled = programs.run([measure, "recovery_fill", *worker.where, str(count), str(running), *worker.layers.references,
                               PROGRAM])
        where = worker.where
        killed_at = time.monotonic()
        worker.kill()
        worker.start()
        seen = programs.run([measure, "recovery_check", *where, str(killed_at * 1e3), str(running), PROGRAM],
                            given="".join(f"{sandbox}\n" for sandbox in filled.words["sandbox"]))
        seen.failed += filled.failed
    return seen


def _expected(last: int) -> tuple[str, int]:
    """Digest and length of what `seq` writes."""
    digest, length = hashlib.sha256(), 0
    with subprocess.Popen(["seq", "1", str(last)], stdout=subprocess.PIPE) as seq:
        while piece := seq.stdout.read(PIECE):
            digest.update(piece)
            length += len(piece)
    return digest.hexdigest(), length


def _read_with_kills(worker: Worker, arguments: list[str], length: int, kills: int) -> tuple[str, int, int]:
    """Kills whenever another part of the output was read, so that each dsecd has served some of it."""
    digest, read, killed = hashlib.sha256(), 0, 0
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as reader:
        while piece := reader.stdout.read1(PIECE):
            digest.update(piece)
            read += len(piece)
            if killed < kills and read >= (killed + 1) * length // (kills + 1):
                worker.kill()
                worker.start()
                killed += 1
    return digest.hexdigest(), read, killed


def _stream(shop: Workshop) -> Row:
    measure = shop.program("measure")
    last, kills = QUICK_STREAM if shop.quick else STREAM
    digest, length = _expected(last)
    with shop.worker() as worker:
        script = f"/bin/busybox seq 1 {last}"
        started = programs.run([measure, "stream_start", *worker.where, script, str(STREAM_CAP), *worker.layers.references])
        sandbox = started.words["sandbox"][0]
        began = time.monotonic()
        got, read, killed = _read_with_kills(worker, [measure, "stream_read", *worker.where, sandbox], length, kills)
        took = time.monotonic() - began
    right = got == digest and killed == kills
    return row("recovery.stream", Series([[1e3 * took]] if right else [], 0 if right else 1),
               f"{length / 1e6:.0f} MB of one command, read by a client while dsecd is killed {killed} times; SHA-256 "
               f"{'equal' if got == digest else 'differs'}; p50: ms in all", value=abs(length - read), unit="bytes missing",
               at_most=0)


def measure(shop: Workshop) -> list[Row]:
    count, running, rounds = (100, 20, 1) if shop.quick else (500, 100, 3)
    served, listed = Series(), Series()
    for _ in range(rounds):
        seen = _kill_and_serve(shop, count, running)
        served.blocks.append([each / 1e3 for each in seen.all("served")])
        listed.blocks.append([each / 1e3 for each in seen.all("listed")])
        served.failed += seen.failed
    return [
        row("recovery.served", served, f"kill -9 with {count} sandboxes and {running} commands that run, start; then the list "
            f"is right, each of the {running} still runs and is waited for, and another command has run in each sandbox; "
            "since the kill, the slowest round", value=max(served.all), unit="s", at_most=SERVED_SECONDS),
        row("recovery.listed", listed, "of this: until the list was right", value=max(listed.all), unit="s"),
        _stream(shop),
    ]

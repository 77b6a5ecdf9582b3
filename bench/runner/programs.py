"""The measuring programs: their arguments in, their figures out (bench/measure/main.cpp and bench/floor/main.cpp say
what each prints)."""
import collections
import subprocess

from runner.errors import Unable

TIMEOUT = 900  # s, for a program or for one phase of it


class Figures:
    """By name, in order; figures without a name under "". `failed` counts attempts."""

    def __init__(self) -> None:
        self.by_name: dict[str, list[list[float]]] = collections.defaultdict(list)
        self.words: dict[str, list[str]] = collections.defaultdict(list)
        self.failed = 0

    def take(self, line: str) -> None:
        first, *rest = line.split()
        if first == "failed":
            self.failed += int(rest[0])
        elif first == "sandbox":
            self.words[first].append(rest[0])
        elif not rest:
            self.by_name[""].append([float(first)])
        else:
            self.by_name[first].append([float(each) for each in rest])

    def all(self, name: str) -> list[float]:
        """The last (usually the only) figure of each line."""
        return [figures[-1] for figures in self.by_name[name]]

    def one(self, name: str) -> float:
        return self.all(name)[-1]


def _say(errors: str) -> None:
    if errors.strip():
        print(errors.strip()[-500:], flush=True)


def run(arguments: list[str], given: str = "") -> Figures:
    """To its end. A program that says nothing measured nothing: that is Unable."""
    done = subprocess.run(arguments, input=given, capture_output=True, text=True, timeout=TIMEOUT)
    if not done.stdout.strip():
        raise Unable(f"{' '.join(arguments)} measured nothing: {done.stderr.strip()[-500:]}")
    _say(done.stderr)
    figures = Figures()
    for line in done.stdout.splitlines():
        figures.take(line)
    if done.returncode != 0 and figures.failed == 0:
        figures.failed = 1
    return figures


class Staged:
    """A program that stops at certain words, so that the machine can be looked at, and goes on when told to."""

    def __init__(self, arguments: list[str]) -> None:
        self.figures = Figures()
        self._name = arguments[0]
        self._process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> "Staged":
        return self

    def __exit__(self, *_) -> None:
        self._process.stdin.close()
        try:
            self._process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def until(self, word: str) -> None:
        for line in self._process.stdout:
            if line.strip() == word:
                return
            self.figures.take(line)
        raise Unable(f"{self._name} ended before it was '{word}'")

    def go_on(self) -> None:
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def finish(self) -> None:
        for line in self._process.stdout:
            self.figures.take(line)
        if self._process.wait(TIMEOUT) != 0 and self.figures.failed == 0:
            self.figures.failed = 1

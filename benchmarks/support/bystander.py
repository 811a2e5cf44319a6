"""A process that has nothing to do with what is measured: by how much does the machine delay it?

    with Bystander() as beside:
        ...
    beside.told

Every 20 ms it does the same piece of work, of 3 to 5 ms, in a loop of its own. So it takes as much
of a core as a busy daemon. `late_ms` is the time by the clock from when a piece was due until it
was done, less the CPU time that the work took. Each step on the way of an answer, from thread to
thread, may be as late. `longest_cpu_ms` is the CPU time
of the longest piece. Where it is about that of the others, the CPU time of a thread can be
believed.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from types import TracebackType
from typing import NamedTuple, Self

from benchmarks.support.conditions import percentile

EVERY_S = 0.02
STEPS = 300_000


class Told(NamedTuple):
    """The delays of the bystander, in ms."""

    late_p50_ms: float
    late_p99_ms: float
    cpu_p50_ms: float
    longest_cpu_ms: float


class Bystander:
    """Runs beside the body of its `with`."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        words, _ = self._process.communicate()
        self.told = Told(*json.loads(words))


def main() -> None:
    """Work and rest until stdin is closed, then tell."""
    late_s, cpu_s = list[float](), list[float]()
    due_s = time.perf_counter()
    while not select.select([sys.stdin], [], [], max(0.0, due_s - time.perf_counter()))[0]:
        used_s = time.thread_time()
        sum(range(STEPS))
        used_s = time.thread_time() - used_s
        cpu_s.append(used_s)
        late_s.append(time.perf_counter() - due_s - used_s)
        due_s = max(due_s + EVERY_S, time.perf_counter())
    told = [percentile(late_s, 0.5), percentile(late_s, 0.99), percentile(cpu_s, 0.5), max(cpu_s)]
    print(json.dumps([1e3 * each for each in told]))


if __name__ == "__main__":
    main()

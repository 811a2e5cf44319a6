"""`dlq-master` with a clock on each round of its loop, for benchmarks of its stalls.

    python -m benchmarks.support.timed_master run --config FILE

Between two rounds the loop looks at its sockets. So the longest round is the longest time for which
no heartbeat and no submit is heard. A round is measured by the CPU time of the loop's thread: other
processes of the machine lengthen no round. On SIGUSR2 the master writes its rounds so far into
`rounds.json`, in the directory of `--config`, and counts anew.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from asyncio import base_events
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.support.conditions import percentile

COMMAND = ("python", "-m", "benchmarks.support.timed_master")
FILE = "rounds.json"
PATIENCE_S = 30.0


def rounds_of(pid: int, directory: Path) -> dict[str, float]:
    """The rounds of a master since they were asked for last: `longest_ms`, `p99_ms`, `cpu_s`."""
    file = directory / FILE
    file.unlink(missing_ok=True)
    os.kill(pid, signal.SIGUSR2)
    deadline_s = time.monotonic() + PATIENCE_S
    while not file.exists():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"the master writes no {file}")
        time.sleep(0.01)
    found: dict[str, float] = json.loads(file.read_text())
    return found


class _Rounds:
    """The CPU seconds of each round."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._took_s: list[float] = []
        self._asked = False  # in this round: telling takes long, and is no work of the master

    def timed(self, run: Callable[[Any], None]) -> Callable[[Any], None]:
        """The same function of a loop, with a clock on it."""

        def timed_round(loop: Any) -> None:
            self._asked, began_s = False, time.thread_time()
            run(loop)
            if not self._asked:
                self._took_s.append(time.thread_time() - began_s)

        return timed_round

    def tell(self, *_signal: object) -> None:
        """Write, and count anew."""
        took_s, self._took_s, self._asked = self._took_s or [0.0], [], True
        told = {
            "longest_ms": 1e3 * max(took_s),
            "p99_ms": 1e3 * percentile(took_s, 0.99),
            "cpu_s": sum(took_s),
            "rounds": len(took_s),
        }
        new = self._directory / f"{FILE}.new"
        new.write_text(json.dumps(told))
        new.rename(self._directory / FILE)


def main() -> None:
    """Be the master."""
    from dlq_master import app

    rounds = _Rounds(Path(sys.argv[sys.argv.index("--config") + 1]).parent)
    base_events.BaseEventLoop._run_once = rounds.timed(  # type: ignore[attr-defined] # no public door
        base_events.BaseEventLoop._run_once  # type: ignore[attr-defined]
    )
    signal.signal(signal.SIGUSR2, rounds.tell)
    app.main()


if __name__ == "__main__":
    main()

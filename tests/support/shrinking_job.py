"""A training script that tells its steps: as slow as its number of nodes says, and it writes down
how it was run.

shrinking_job.py LOG STEP_S TOTAL: a step takes STEP_S (1 + log2(nodes) / 10) seconds.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from math import log2
from pathlib import Path

import dlq_train


def main(log: str, step_s: str, total: str) -> None:
    run = dlq_train.init()
    started = run.resume(lambda path: json.loads((path / "step").read_text())) or 0
    told = {
        "attempt": int(run.attempt),
        "rank": run.rank,
        "nodes": run.nnodes,
        "trial": run.trial,
        "pet": os.environ["PET_NNODES"],
        "resumed_at": started,
        "directory": str(run.checkpoint_dir),
    }
    _append(log, told)
    pace_s = float(step_s) * (1.0 + log2(run.nnodes) / 10.0)
    for step in range(started, int(total)):
        time.sleep(pace_s)
        run.beat(step + 1, total=int(total))
        if step == started + 2 and run.rank == 0:
            run.save(step + 1, _saved(step + 1))
    _append(log, {"attempt": int(run.attempt), "rank": run.rank, "done": True})
    run.done()


def _saved(done: int) -> Callable[[Path], object]:
    return lambda path: (path / "step").write_text(str(done))


def _append(log: str, line: dict[str, object]) -> None:
    with Path(log).open("a") as file:
        file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])

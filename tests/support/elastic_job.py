"""A plain training script that runs on any number of nodes, and writes down each step that it has
done.

elastic_job.py LOG STEP_S SAVE_S: rank 0 trains until there is a file LOG.enough, and takes SAVE_S
to save; the others are there until it is done, or until they are told to leave.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import dlq_train


def main(log: str, step_s: str, save_s: str) -> None:
    run = dlq_train.init()
    finished = Path(f"{log}.done")
    if run.rank:
        while not finished.exists():
            if run.should_stop():
                run.leave()
            time.sleep(0.02)
        return
    step = run.resume(lambda path: json.loads((path / "step").read_text())) or 0
    while not Path(f"{log}.enough").exists():
        time.sleep(float(step_s))
        step += 1
        told = {"step": step, "attempt": int(run.attempt), "gpus": int(os.environ["DLQ_GPUS"])}
        with Path(log).open("a") as file:
            file.write(json.dumps(told) + "\n")
        run.beat(step)
        if run.should_stop():
            run.save(step, _saved(step, float(save_s)))
            run.leave()
    finished.touch()
    run.done()


def _saved(step: int, save_s: float) -> Callable[[Path], object]:
    def write(path: Path) -> None:
        time.sleep(save_s)
        (path / "step").write_text(str(step))

    return write


if __name__ == "__main__":
    main(*sys.argv[1:])

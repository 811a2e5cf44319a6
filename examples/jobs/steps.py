#!/usr/bin/env python3
"""A training that takes its time and nothing else: STEPS steps of SECONDS each, saved when asked.

With --until it goes on after them until that file is there, and with --saves-in a save takes that
long.
"""

import argparse
import time
from pathlib import Path

import dlq_train


class Counted:
    """All that this training knows."""

    def __init__(self, step: int, saves_in_s: float) -> None:
        self._step, self._saves_in_s = step, saves_in_s

    def write(self, directory: Path) -> None:
        time.sleep(self._saves_in_s)
        (directory / "step").write_text(str(self._step))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=0.1)
    parser.add_argument("--until", type=Path, metavar="FILE")
    parser.add_argument("--saves-in", type=float, default=0.0, metavar="SECONDS")
    options = parser.parse_args()
    run = dlq_train.init()
    step = run.resume(lambda directory: int((directory / "step").read_text())) or 0
    print(f"begins after step {step}", flush=True)
    while step < options.steps or (options.until is not None and not options.until.exists()):
        time.sleep(options.seconds)
        step += 1
        run.beat(step, total=max(step, options.steps))
        if run.should_stop():
            if run.rank == 0:
                run.save(step, Counted(step, options.saves_in).write)
                print(f"saved after step {step}", flush=True)
            run.leave()
    run.done()


if __name__ == "__main__":
    main()

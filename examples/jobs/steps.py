#!/usr/bin/env python3
"""A training that takes its time and nothing else: STEPS steps of SECONDS each, saved when asked."""

import argparse
import time
from pathlib import Path

import dlq_train


class Counted:
    """All that this training knows."""

    def __init__(self, step: int) -> None:
        self._step = step

    def write(self, directory: Path) -> None:
        (directory / "step").write_text(str(self._step))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=0.1)
    options = parser.parse_args()
    run = dlq_train.init()
    done = run.resume(lambda directory: int((directory / "step").read_text())) or 0
    for step in range(done + 1, options.steps + 1):
        time.sleep(options.seconds)
        run.beat(step, total=options.steps)
        if run.should_stop():
            run.save(step, Counted(step).write)
            run.leave()
    run.done()


if __name__ == "__main__":
    main()

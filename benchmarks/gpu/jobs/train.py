"""A job that trains, saves when asked, and tells every loss.

    python -m benchmarks.gpu.jobs.train NOTES BYTES [--steps N] [--seconds S] [--no-further N]
                                                    [--pace FILE]

Notes: `begun`; `trains` with the step it begins with; `stepped` after that step; `noticed` and
`saved` around a save; `ended` with all losses of this attempt, to the last bit, and the digest of
the state.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import dlq_train
from benchmarks.gpu.jobs.notes import Notes
from benchmarks.gpu.jobs.work import work


def main() -> None:
    """Train to the last step, or until asked to leave."""
    parser = argparse.ArgumentParser()
    parser.add_argument("notes")
    parser.add_argument("bytes", type=int)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--step-s", type=float, default=0.0, help="no step is shorter")
    parser.add_argument("--pace", type=Path, help="no more steps than this file has bytes")
    parser.add_argument("--no-further", type=int, default=0, help="than this step, before a pause")
    options = parser.parse_args()
    notes = Notes(options.notes)
    notes.take("begun")
    run, model = dlq_train.init(), work(options.bytes)

    def load(place: Path) -> int:
        model.load(place)
        return int(place.name.removeprefix("step-"))

    first = run.resume(load) or 0
    notes.take("trains", step=first, bytes=model.memory_bytes(), versions=model.versions)
    losses: list[str] = []
    began_s = time.monotonic()
    for step in range(first, options.steps):
        while options.pace is not None and options.pace.stat().st_size <= step:
            time.sleep(0.002)
        step_ends_s = time.monotonic() + options.step_s
        losses.append(model.step(step).hex())
        if step == first:
            notes.take("stepped", step=step + 1)
        run.beat(step + 1, total=options.steps)
        while first == 0 and step + 1 == options.no_further and not run.should_stop():
            time.sleep(0.02)
        if run.should_stop():
            notes.take("noticed", step=step + 1)
            run.save(step + 1, model.save)
            notes.take("saved", step=step + 1, first=first, losses=losses)
            run.leave()
        if time.monotonic() - began_s > options.seconds:
            break
        time.sleep(max(0.0, step_ends_s - time.monotonic()))
    run.done()
    took_s = time.monotonic() - began_s
    notes.take("ended", first=first, losses=losses, digest=model.digest(), took_s=took_s)


if __name__ == "__main__":
    main()

"""A job that trains nothing, saves when asked, and notes its steps on CLOCK_BOOTTIME.

    python saving_job.py NOTES MIB

Runs inside dlq with `dlq_train`. Notes are JSON lines {"attempt", "what", "at_s"} at the end of
NOTES; its checkpoint is one file of MIB mebibytes.
"""

import time

BEGUN_S = time.clock_gettime(time.CLOCK_BOOTTIME)  # the interpreter's first act

import json  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

import dlq_train  # noqa: E402

STEP_S = 0.002  # short, so that the end of a step adds little to the measured time


class Notes:
    """Kept in memory until the file is written: a note must not delay its event."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines = [self._line("begun", BEGUN_S)]

    def take(self, what: str) -> None:
        """It happens now."""
        self._lines.append(self._line(what, time.clock_gettime(time.CLOCK_BOOTTIME)))

    def write(self) -> None:
        """Append the notes since the last call, in one piece."""
        with self._path.open("a") as file:
            file.write("".join(self._lines))
        self._lines.clear()

    @staticmethod
    def _line(what: str, at_s: float) -> str:
        note = {"attempt": int(os.environ["DLQ_ATTEMPT"]), "what": what, "at_s": at_s}
        return json.dumps(note) + "\n"


def main() -> None:
    """Load, step until asked to stop, save, leave."""
    notes, content = Notes(Path(sys.argv[1])), b"x" * (int(sys.argv[2]) << 20)
    run = dlq_train.init()
    notes.take("load_begin")
    run.resume(lambda path: (path / "state").read_bytes())
    notes.take("load_end")
    notes.write()
    step = int(os.environ["DLQ_ATTEMPT"]) * 1_000_000
    while not run.should_stop():
        step += 1
        run.beat(step)
        time.sleep(STEP_S)
    notes.take("noticed")
    run.save(step, lambda path: (path / "state").write_bytes(content))
    notes.take("saved")
    notes.write()
    run.leave()


if __name__ == "__main__":
    main()

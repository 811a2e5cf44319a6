"""A job that saves when it is told to leave and goes on from there, and writes down every start and
its one end.

lasting_job.py LEDGER STEPS: a step takes a tenth of a second. A lock shows two attempts that work
at once.
"""

import fcntl
import json
import os
import sys
import time
from functools import partial
from pathlib import Path

import dlq_train

STEP_S = 0.1


def main(ledger: Path, steps: int) -> None:
    """Take the lock, work, save or end."""
    job, rank = os.environ["DLQ_JOB_ID"], os.environ["DLQ_NODE_RANK"]
    lock = os.open(ledger.with_name(f"lock-{job}-{rank}"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _write(ledger, "overlap", job, rank)
        sys.exit(86)
    run = dlq_train.init()
    step = run.resume(lambda directory: int((directory / "step").read_text())) or 0
    _write(ledger, "start", job, rank)
    while step < steps:
        time.sleep(STEP_S)
        step += 1
        run.beat(step, total=steps)
        if run.should_stop():
            if run.rank == 0:
                run.save(step, partial(_save, step))
            _write(ledger, "saved", job, rank)
            run.leave()
    _write(ledger, "stop", job, rank)
    run.done()


def _save(step: int, directory: Path) -> None:
    (directory / "step").write_text(str(step))


def _write(ledger: Path, what: str, job: str, rank: str) -> None:
    line = {"what": what, "job": job, "rank": rank, "attempt": os.environ["DLQ_ATTEMPT"]}
    handle = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(handle, json.dumps(line).encode() + b"\n")
    os.close(handle)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

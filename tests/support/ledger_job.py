"""The job of the torture runs: it writes down that it started and that it ended, and nothing else.

    ledger_job.py LEDGER SECONDS EXIT_CODE

Run with `python -I -S` and the standard library only, so that thousands of them start quickly. One
line of JSON is appended for each fact, in one write; a lock for each job and rank shows a second
attempt beside the first, whatever its clock says.
"""

import fcntl
import json
import os
import sys
import time
from pathlib import Path


def main() -> None:
    """Take the lock, live, leave."""
    ledger, seconds, code = Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    job, rank = os.environ["DLQ_JOB_ID"], os.environ["DLQ_NODE_RANK"]
    lock = os.open(ledger.with_name(f"lock-{job}-{rank}"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _write(ledger, "overlap", job, rank)
        sys.exit(86)
    _write(ledger, "start", job, rank)
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        time.sleep(min(0.05, seconds))
        if seconds > 60.0:  # one that outlives its master says that it is alive
            _write(ledger, "alive", job, rank)
    _write(ledger, "stop", job, rank, code=code)
    sys.exit(code)


def _write(ledger: Path, what: str, job: str, rank: str, **facts: int) -> None:
    line = {
        "what": what,
        "job": job,
        "rank": rank,
        "attempt": os.environ["DLQ_ATTEMPT"],
        "fence": os.environ["DLQ_FENCE"],
        "boottime_s": time.clock_gettime(time.CLOCK_BOOTTIME),
        **facts,
    }
    handle = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(handle, json.dumps(line).encode() + b"\n")
    os.close(handle)


if __name__ == "__main__":
    main()

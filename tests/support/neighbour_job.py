"""A job that works beside hostile ones, and tells how much it gets done.

    neighbour_job.py FILE

It appends its count of rounds about five times a second, until it is ended. It needs the standard
library only.
"""

import os
import sys
import time

ROUND = 20_000
TELL_S = 0.2


def main() -> None:
    """Count, and tell."""
    file = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    rounds, told_s = 0, time.monotonic()
    while True:
        sum(range(ROUND))
        rounds += 1
        now_s = time.monotonic()
        if now_s - told_s >= TELL_S:
            os.write(file, f"{now_s} {rounds}\n".encode())
            told_s = now_s


if __name__ == "__main__":
    main()

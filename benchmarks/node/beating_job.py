"""A job that only beats, once a second as dlq_train writes beats; with a second word it floods its
output.

    python beating_job.py SECONDS [FLOOD_MARK]

It ends by itself after SECONDS, also when its starter has gone. It floods as long as FLOOD_MARK
exists.
"""

import os
import sys
import time

import dlq_train

LINE = b"a line of a flood that nobody asked for\n" * 1000


def main() -> None:
    """Beat ten steps a second; write all the time in between when there is a flood."""
    run, mark = dlq_train.init(), sys.argv[2] if len(sys.argv) > 2 else ""
    end_s, step = time.monotonic() + float(sys.argv[1]), 0
    while time.monotonic() < end_s and not run.should_stop():
        step += 1
        run.beat(step, loss=1.0 / step)
        if mark and os.path.exists(mark):
            os.write(1, LINE)
        else:
            time.sleep(0.1)
    run.leave()


if __name__ == "__main__":
    main()

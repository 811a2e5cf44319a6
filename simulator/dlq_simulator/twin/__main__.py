"""`python -m dlq_simulator.twin`: answers a master's questions through two pipes.

It says first which code it runs, and ends when the first pipe is closed.
"""

from __future__ import annotations

import os
import signal

from dlq_master.planner import code
from dlq_master.planner.modest import be_modest
from dlq_simulator.twin.serving import Serving

# The work of the master, the agents' answers and the store comes first.
_NICE = 10


def main() -> None:
    """Frames come on descriptor 0 and go to 1. All other output goes to stderr."""
    be_modest(_NICE)
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # a Ctrl-C is for the master, which closes the pipe
    answers = os.dup(1)
    os.dup2(2, 1)
    Serving(0, answers).run(code.greeting(code.digest()))


if __name__ == "__main__":
    main()

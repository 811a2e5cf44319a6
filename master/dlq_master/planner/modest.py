"""How the processes that a master starts behave beside it."""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path

PR_SET_PDEATHSIG = 1


def be_modest(nice: int) -> None:
    """The master comes first, and its end kills this process too."""
    os.nice(nice)
    Path("/proc/self/oom_score_adj").write_text("1000")
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

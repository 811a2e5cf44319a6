"""One entry for all stand-ins: the first word says which one is meant."""

from __future__ import annotations

import os
import sys
from typing import Callable, Dict, List

from dlq_compat import delegate, sbcast, scontrol
from dlq_compat.version import VERSION, VERSION_WORDS

_HERE: Dict[str, Callable[[List[str]], int]] = {"scontrol": scontrol.main, "sbcast": sbcast.main}
_ASKING = (
    "sbatch", "squeue", "sacct", "salloc", "scancel", "sinfo", "srun", "sacctmgr", "sshare",
    "sprio", "sdiag", "sreport", "sattach", "sstat", "strigger",
    "seff",
)  # fmt: skip
PROGRAMS = (*_HERE, *_ASKING)
OF_STEPS = ("batch", "srun", "sattach", "scancel")
"""Programs that are compiled where jobs run: the main process of a rank, and those of its steps."""


def _take_functions() -> None:
    """Put back the functions that the wrapper's `sh` has dropped from the environment."""
    for pair in os.environb.pop(b"DLQ_FUNCTIONS", b"").split(b"\1"):
        name, _, value = pair.partition(b"=")
        if name.startswith(b"BASH_FUNC_") and value:
            os.environb[name] = value


def main() -> int:
    """Run the program that the first argument names."""
    _take_functions()
    name, arguments = sys.argv[1], sys.argv[2:]
    if arguments[:1] and arguments[0] in VERSION_WORDS:
        print(VERSION)
        return 0
    program = _HERE.get(name)
    return program(arguments) if program else delegate.run(name, arguments)

"""One entry for all stand-ins: the first word says which one is meant."""

from __future__ import annotations

import os
import sys
from typing import Callable, Dict, List

from dlq_compat import batch, delegate, scontrol, srun
from dlq_compat.version import VERSION, VERSION_WORDS

_HERE: Dict[str, Callable[[List[str]], int]] = {
    "batch": batch.main,
    "scontrol": scontrol.main,
    "srun": srun.main,
}
_ASKING = ("sbatch", "squeue", "sacct", "salloc", "scancel", "sinfo")
PROGRAMS = (*_HERE, *_ASKING)
INSIDE = ("batch", "srun", "salloc")
"""Programs that never go to a user's server: they stay as long as what they start."""


def main() -> int:
    """Run the program that the first argument names."""
    name, arguments = sys.argv[1], sys.argv[2:]
    if name == "batch":
        # The stand-ins come first, before any PATH of the job or its image.
        os.environ["PATH"] = os.pathsep.join(
            (os.environ["DLQ_SLURM_BIN"], os.environ.get("PATH", os.defpath))
        )
    if name != "batch" and arguments[:1] and arguments[0] in VERSION_WORDS:
        print(VERSION)
        return 0
    program = None if name == "srun" and srun.is_outside(os.environ) else _HERE.get(name)
    return program(arguments) if program else delegate.run(name, arguments)

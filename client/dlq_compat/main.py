"""One entry for all stand-ins: the first word says which one is meant."""

from __future__ import annotations

import os
import sys
from typing import Callable, Dict, List

from dlq_compat import batch, delegate, scontrol, srun

_HERE: Dict[str, Callable[[List[str]], int]] = {
    "batch": batch.main,
    "scontrol": scontrol.main,
    "srun": srun.main,
}
_ASKING = ("sbatch", "squeue", "sacct", "scancel")
PROGRAMS = (*_HERE, *_ASKING)


def main() -> int:
    """Run the program that the first argument names."""
    name, arguments = sys.argv[1], sys.argv[2:]
    if name == "batch":
        # The stand-ins come first, whatever a job or its image calls PATH.
        os.environ["PATH"] = os.pathsep.join(
            (os.environ["DLQ_SLURM_BIN"], os.environ.get("PATH", os.defpath))
        )
    program = _HERE.get(name)
    return program(arguments) if program else delegate.run(name, arguments)

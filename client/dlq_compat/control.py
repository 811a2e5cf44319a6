"""How the programs of one rank talk: lines through a FIFO that belongs to the job's user.

The main process of the rank (batch.py) reads them; a step says where it is, and `scontrol requeue`
asks for the job's end. Nothing here reaches beyond the rank, so no user needs a right for it.
"""

from __future__ import annotations

import errno
import os
from typing import Mapping

CONTROL = "DLQ_SLURM_CONTROL"
"""The variable that names the FIFO; set by batch.py."""
REQUEUE = "requeue"
STEP = "step"
LEFT = "left"

_NOBODY = (errno.ENOENT, errno.ENXIO, errno.EACCES, errno.ENOTDIR)


def tell(environ: Mapping[str, str], *words: str) -> bool:
    """Write one line; False when this is no rank, or its main process does not listen any more."""
    path = environ.get(CONTROL)
    if not path:
        return False
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno in _NOBODY:
            return False
        raise
    try:
        os.write(descriptor, (" ".join(words) + "\n").encode())
    finally:
        os.close(descriptor)
    return True

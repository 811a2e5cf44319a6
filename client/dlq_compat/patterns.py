"""Names of output files as Slurm writes them: `logs/%x-%j-%t.out`."""

from __future__ import annotations

import re
from typing import Mapping

_SIGN = re.compile(r"%(\d*)([%AaJjNnstux])")


def filled(pattern: str, environ: Mapping[str, str]) -> str:
    """The pattern with what a task knows of itself; a number pads, as in `%4t`. `%%` is a
    percent.
    """
    job = environ.get("SLURM_JOB_ID", "0")
    step = environ.get("SLURM_STEP_ID", "0")
    words = {
        "%": "%",
        "A": environ.get("SLURM_ARRAY_JOB_ID", job),
        "a": environ.get("SLURM_ARRAY_TASK_ID", "0"),
        "J": "%s.%s" % (job, step),
        "j": job,
        "N": environ.get("SLURMD_NODENAME", ""),
        "n": environ.get("SLURM_NODEID", "0"),
        "s": step,
        "t": environ.get("SLURM_PROCID", "0"),
        "u": environ.get("SLURM_JOB_USER", ""),
        "x": environ.get("SLURM_JOB_NAME", ""),
    }

    def word(found: "re.Match[str]") -> str:
        text = words[found[2]]
        return text.rjust(min(int(found[1] or 0), 10), "0") if text.isdigit() else text

    return _SIGN.sub(word, pattern)

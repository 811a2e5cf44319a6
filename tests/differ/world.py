"""The jobs that both schedulers get before they are asked."""

from __future__ import annotations

import os

from differ.pair import Side
from support.waiting import wait_until

SCRIPTS = {
    "good.sh": "#!/bin/sh\necho hi\n",
    "bad.sh": "#!/bin/sh\nexit 3\n",
    "long.sh": "#!/bin/sh\nsleep 3000\n",
}
# In this order, as the ids are named in the calls.
JOBS = (
    "sbatch -G1 -t 10 -w n1 good.sh",
    "sbatch -G1 -t 10 -w n1 bad.sh",
    "sbatch -G4 -t 60 -w n1 -J train -o out-%j.txt --comment third long.sh",
    "sbatch -N2 --gpus-per-node=8 -t 2:00:00 -J wide long.sh",
    "sbatch -G1 -H -J held long.sh",
    "sbatch -G1 -d afterok:3 -J after long.sh",
    "sbatch -G1 --begin=now+2hours -J later -e err.txt long.sh",
    "sbatch -G2 -t 30 -w n2 -J second long.sh",
    "sbatch -G1 -t 30 -w n2 -J gone long.sh",
    "sbatch --array=0-5%2 -G1 -H -J many long.sh",
)
_SETTLED = {
    "1": "CD", "2": "F", "3": "R", "4": "PD", "5": "PD", "6": "PD", "7": "PD", "8": "R", "9": "R",
}  # fmt: skip


def prepare(side: Side) -> list[str]:
    """The jobs, in their states; what each submission printed."""
    for name, text in SCRIPTS.items():
        path = side.home / name
        path.write_text(text)
        path.chmod(0o755)
        os.chown(path, side.who.pw_uid, side.who.pw_gid)
    said = []
    for place, line in enumerate(JOBS):
        answer = side.said(line)
        assert answer.code == 0, (line, answer)
        said.append(answer.out)
        if place == 1:  # the next ones want their GPUs
            _until(side, {"1": "CD", "2": "F"})
    _until(side, _SETTLED)
    assert side.said("scancel 9").code == 0
    _until(side, {"9": "CA"})
    return said


def _until(side: Side, states: dict[str, str]) -> None:
    def settled() -> bool:
        lines = side.said(f"squeue -h -t all -o '%i %t' -j {','.join(states)}").out.splitlines()
        found = dict(line.split() for line in lines)
        return all(found.get(job) == state for job, state in states.items())

    wait_until(settled, what=f"jobs are {states}", timeout_s=60.0)

"""Commands of a Slurm script that behave differently under dlq."""

from __future__ import annotations

import re
from typing import NamedTuple


class Remark(NamedTuple):
    """Something to look at; without a line it is about the whole script."""

    line: int | None
    text: str


_COMMANDS = {
    "srun": "write the command itself; dlq starts the script on every node",
    "mpirun": "dlq starts the script on every node, without mpirun's hosts",
    "sbatch": "dlq submit",
    "scancel": "dlq cancel",
    "squeue": "dlq status",
    "sacct": "dlq show",
    "scontrol": "the list of hosts is $DLQ_NODELIST, the first of them $DLQ_MASTER_ADDR",
    "scontrol requeue": "end with exit code 99 to be run again (--requeue-exit names others)",
}
_COMMAND = re.compile(
    rf"(?:^|[;&|(`]|\bexec\b|\bthen\b|\bdo\b)\s*({'|'.join(sorted(_COMMANDS, reverse=True))})\b"
)

_VARIABLES = {
    "SLURM_JOB_ID": "DLQ_JOB_ID",
    "SLURM_JOBID": "DLQ_JOB_ID",
    "SLURM_NNODES": "DLQ_NNODES",
    "SLURM_JOB_NUM_NODES": "DLQ_NNODES",
    "SLURM_NODEID": "DLQ_NODE_RANK",
    "SLURM_JOB_NODELIST": "DLQ_NODELIST",
    "SLURM_NODELIST": "DLQ_NODELIST",
    "SLURM_GPUS_ON_NODE": "DLQ_GPUS_PER_NODE",
    "SLURM_GPUS_PER_NODE": "DLQ_GPUS_PER_NODE",
    "SLURM_RESTART_COUNT": "DLQ_RESTART_COUNT",
    "SLURM_ARRAY_TASK_ID": "DLQ_ARRAY_TASK_ID",
    "SLURM_JOB_END_TIME": "DLQ_TIME_LIMIT_END",
}
_VARIABLE = re.compile(r"\bSLURM_[A-Z_]+\b")


def remarks(text: str, *, nodes: int) -> list[Remark]:
    """Commands and variables of Slurm in the script, by line."""
    found: list[Remark] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.lstrip().startswith("#"):
            continue
        found += [
            Remark(number, f"{command[1]}: {_COMMANDS[command[1]]}")
            for command in _COMMAND.finditer(line)
        ]
        found += [
            Remark(number, f"${name}: {_instead(name)}")
            for name in dict.fromkeys(_VARIABLE.findall(line))
        ]
    if nodes > 1:
        found.append(
            Remark(
                None,
                f"Slurm runs the script on the first of {nodes} nodes, dlq on each of them: a bare "
                "`torchrun train.py` finds the others by itself",
            )
        )
    return found


def _instead(name: str) -> str:
    ours = _VARIABLES.get(name)
    return f"here ${ours}" if ours else "not set by dlq"

"""The page of the docs about differences, from the table."""

from __future__ import annotations

from pathlib import Path

from differ.calls import CALLS
from differ.explained import EXPLAINED

PAGE = Path(__file__).parents[2] / "docs" / "internals" / "slurm-differences.md"
_HEAD = """\
# Differences from Slurm's answers

`make differ` gives the same jobs to a cluster of dlq and to a real Slurm 22.05.8 with its
accounting, as one account of the host. It then asks both the same {calls} calls: `squeue`, `sinfo`,
`scontrol`, `sacct`, `sacctmgr`, `sshare`, `sprio`, `sdiag`, `sreport`, `sbatch`, `srun`, `salloc`
and `scancel`, with errors and exit codes. Instants, ids, short times, names and places are replaced
on both sides. Each other difference has an entry here, or the run fails. `make test-rest` holds dlq
against Slurm's recorded answers (`tests/data/slurm_answers.json`).

| calls | difference |
|---|---|
"""


def page() -> str:
    """Made by `python -m differ --record`."""
    rows = [f"| {_calls(one.calls)} | {one.reason} |" for one in EXPLAINED]
    return _HEAD.format(calls=len(CALLS)) + "\n".join(rows) + "\n"


def _calls(pattern: str) -> str:
    """A pattern as people read it; in a table `|` would end the cell."""
    if pattern == ".":
        return "all"
    text = pattern
    for mark in ("^", "$", "\\", "(?:", ")", "'"):
        text = text.replace(mark, "")
    return ", ".join(f"`{part}`" for part in text.replace("|", "\n").split("\n"))

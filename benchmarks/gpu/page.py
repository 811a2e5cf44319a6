"""The page docs/gpu-proof.md: the last run of each device and driver, from the kept files; and the
table of versions in docs/running/gpu-health.md.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import ROOT
from benchmarks.gpu.checks.registry import CHECKS, WHOLE_S
from benchmarks.gpu.proof import FOLDER, table

PATH = ROOT / "docs" / "gpu-proof.md"
HEALTH = ROOT / "docs" / "running" / "gpu-health.md"
BEGIN = "<!-- Generated from benchmarks/gpu/results by benchmarks/gpu/page.py -->"
END = "<!-- end of the generated part -->"
COLUMNS = ("device", "driver", "CUDA of the driver", "NVML", "NCCL", "date", "commit")
HEAD = f"""\
<!-- Generated from benchmarks/gpu/results by benchmarks/gpu/page.py; do not edit. -->

# Proofs on a GPU

`make gpu` shows dlq on the GPUs of a host, within {WHOLE_S // 60} minutes. It starts a master and
an agent there, and ends both. Each section below is the last run on a device with a driver.

## How to run it

```sh
make gpu                                # all checks, on the first GPU
make gpu ONLY='facts killed' OUT=out    # some of them
```

The host needs Python 3.11 or newer with PyTorch, a C compiler, make, and the driver. It needs no
network, no root and no packages of the system. The user needs an account (`getent passwd`), and not
`nobody`: a master takes no jobs from others. `GPU_PYTHON=...` names the Python. If the one with
PyTorch is older, `GPU_JOB_PYTHON=...` names that one, for jobs. Without make,
`python3 benchmarks/gpu/bare.py` does the same. Let no job run on these GPUs meanwhile: the checks
use most of the memory of the first one. All GPUs of the host are given out, so
`CUDA_VISIBLE_DEVICES` must not leave out any.

`make gpu-rounds` suspends a training 200 times (`ROUNDS=200`), and exits with an error if a loss
differs or there is no GPU. It is no part of `make gpu`. In tests, on fakes of NVML and CUDA, the
checks `hidden`, `lent` and `sampled` run in `make test-rest`.

Packages of dlq's daemons come from a directory, where the Python has none. Make it on a host with a
network, and copy it to the same place:

```sh
make gpu-wheels FOR=3.12 HAVE='numpy scipy'    # build/gpu-wheels, for Python 3.12
```

That directory also gets the compiled shim and recorder, for a host of the same kind without a C
compiler. Without both, the checks that need no agent are made.

Each check has a limit of its own, and may use the time that those before it have left. `proof.json`
and `proof.md` in build/gpu, or in `OUT`, are written anew after each one. A run of all checks is
kept in benchmarks/gpu/results, and makes this page anew. `python -m benchmarks.gpu --take
proof.json` keeps the file of another host. A run of some checks replaces these in a kept run of the
same device, driver and commit. `GPU_COMMIT=...` names the commit of a tree without .git.

If a claim breaks, or a check cannot be made, the exit code is not 0, and the last lines say which.
They name missed goals too. Of such a check, `logs/CHECK.txt` has the logs of agent and master, and
the output of its jobs.

A check that finds a fault leaves nothing behind: its jobs, its agent and its master end with it.

"""
NEVER = "No run on a GPU has been kept yet. So none of these claims has been seen on hardware:\n\n"


def runs(folder: Path = FOLDER) -> list[dict[str, Any]]:
    """The kept runs, the newest first."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    return sorted(found, key=lambda told: str(told["day"]), reverse=True)


def page_text(kept: Sequence[dict[str, Any]]) -> str:
    """Its text."""
    if not kept:
        claims = [f"| {check.name} | {check.claim} |" for check in CHECKS]
        return (
            HEAD
            + "## Runs\n\n"
            + NEVER
            + "\n".join(["| check | claim |", "| --- | --- |", *claims])
            + "\n"
        )
    sections = []
    for told in kept:
        machine = told["machine"]
        sections.append(f"## {machine['device']}, driver {machine['driver']}\n\n{table(told)}")
    return HEAD + "\n".join(sections)


def versions_text(kept: Sequence[dict[str, Any]]) -> str:
    """The versions with which checks held, a line for each kept run."""
    if not kept:
        return "None seen yet: no run on a GPU has been kept.\n"
    lines = [f"| {' | '.join(COLUMNS)} |", "| --- " * len(COLUMNS) + "|"]
    for told in kept:
        machine = told["machine"]
        row = [machine.get(name, "?") for name in COLUMNS[:4]]
        lines.append(
            f"| {' | '.join(map(str, [*row, _nccl(told), told['day'], told['commit']]))} |"
        )
    return "\n".join(lines) + "\n"


def with_versions(page: str, kept: Sequence[dict[str, Any]]) -> str:
    """The page of GPU health, with the table anew."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n\n{versions_text(kept)}\n{END}{tail}"


def _nccl(told: dict[str, Any]) -> str:
    found = [
        str(finding["value"])
        for one in told["checks"]
        for finding in one["findings"]
        if finding["name"] == "nccl"
    ]
    return found[0] if found else "?"


def write_page() -> None:
    """Write it from the runs that are kept."""
    kept = runs()
    PATH.write_text(page_text(kept))
    HEALTH.write_text(with_versions(HEALTH.read_text(), kept))


if __name__ == "__main__":
    write_page()

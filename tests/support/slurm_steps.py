"""Asks a real Slurm for the variables of srun's tasks: tests/data/slurm_steps.json.

    PYTHONPATH=tests python tests/support/slurm_steps.py

Of each pair of options, those of sbatch and those of srun: the SLURM_* variables of every task.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

from support.ports import free_ports
from support.real_slurm import RealSlurm

RECORD = Path(__file__).parents[1] / "data" / "slurm_steps.json"
STEPS = (
    ("", ""),
    ("-n 3", ""),
    ("-n 3", "-n 2"),
    ("-N 2 -n 2", ""),
    ("-N 2", ""),
    ("-N 2", "-N 1 -n 1"),
    ("-N 2 --ntasks-per-node=2", ""),
    ("-N 2 --ntasks-per-node=2", "-n 1"),
    ("-n 4 -c 2", "-n 2 -c 2"),
    ("--gres=gpu:2 -n 2", ""),
    ("-n 2 --gpus-per-task=1", ""),
    ("-N 2 --ntasks-per-node=2 --gpus-per-node=2", "--gpus-per-task=1"),
    ("-N 2 --ntasks-per-node=1 --gpus-per-node=1", "-l -u --cpu-bind=none"),
)


def script(folder: Path, words: str) -> str:
    """One that runs a step of these options; each task writes its variables into a file."""
    task = f"env | grep -e ^SLURM -e ^CUDA_V | sort > {folder}/task-$SLURM_PROCID"
    return f"#!/bin/sh\nexec srun {words} sh -c '{task}'\n"


def variables(folder: Path) -> list[dict[str, str]]:
    """Those of each task that has written some."""
    files = sorted(folder.glob("task-*"), key=lambda path: int(path.name.rpartition("-")[2]))
    return [dict(line.split("=", 1) for line in path.read_text().splitlines()) for path in files]


def record(root: Path, batch: str, step: str, number: int) -> list[dict[str, str]]:
    """Run one script, and wait for it."""
    folder = root / f"jobs{number}"
    folder.mkdir()
    (folder / "job.sh").write_text(script(folder, step))
    call = ["sbatch", "-W", "-o", "/dev/null", *batch.split(), str(folder / "job.sh")]
    subprocess.run(call, check=True, timeout=60.0, cwd=folder, stdout=subprocess.DEVNULL)
    return variables(folder)


def main() -> None:
    """Record all steps."""
    with tempfile.TemporaryDirectory(prefix="slurm-") as name:
        root = Path(name)
        (root / "slurm").mkdir()
        with RealSlurm(root / "slurm", free_ports(3)[0], nodes=2, gpu_type="h100"):
            made = [
                {"sbatch": batch, "srun": step, "tasks": record(root, batch, step, number)}
                for number, (batch, step) in enumerate(STEPS)
            ]
        text = json.dumps(made, indent=1, sort_keys=True).replace(name, "/slurm")
    origin = "srun of Debian's slurm-wlm 22.05.8 on two nodes of 64 CPUs and eight h100 each"
    whole = {"origin": f"{origin}; tests/support/slurm_steps.py", "steps": json.loads(text)}
    RECORD.write_text(json.dumps(whole, indent=1) + "\n")


if __name__ == "__main__":
    main()

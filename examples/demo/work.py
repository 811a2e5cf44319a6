"""What the demo trains: seven real jobs, and the same long one once more without any cluster."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

JOBS = Path(__file__).resolve().parent.parent / "jobs"
GPUS_PER_NODE = 8


@dataclass(frozen=True, slots=True)
class Work:
    """One job as it is submitted."""

    name: str
    script: str
    arguments: tuple[str, ...]
    gpus: int  # on each node
    nodes: int = 1

    def command(self, out: Path) -> list[str]:
        """The training script as anybody would start it."""
        return [sys.executable, str(JOBS / self.script), "--out", str(out), *self.arguments]

    def submission(self, out: Path) -> list[str]:
        """The arguments of `dlq` that submit it."""
        return [
            "submit", "--parsable", "-J", self.name, "-N", str(self.nodes),
            "--gpus-per-node", str(self.gpus), "-D", str(out), "--", *self.command(out),
        ]  # fmt: skip


# Its six GPUs fill a node beside the data-parallel job, and carry it over the threshold first.
LONG = Work("long-mlp", "mlp.py", ("--steps", "3600"), gpus=6)
DDP = Work("ddp-mlp", "ddp_mlp.py", ("--steps", "2200", "--hidden", "512"), gpus=2, nodes=2)
BESIDE = (
    Work(
        "kmeans",
        "kmeans.py",
        (
            "--steps",
            "1200",
        ),
        gpus=3,
    ),
    Work(
        "ensemble",
        "ensemble.py",
        (
            "--steps",
            "1000",
        ),
        gpus=3,
    ),
)
RIVAL = Work(
    "convnet",
    "convnet.py",
    (
        "--steps",
        "1600",
    ),
    gpus=6,
)
LATE = (
    Work(
        "softmax",
        "softmax.py",
        (
            "--steps",
            "450",
        ),
        gpus=2,
    ),
    Work("small-mlp", "mlp.py", ("--steps", "900", "--seed", "7", "--hidden", "512"), gpus=2),
)


def start_outside(work: Work, out: Path) -> subprocess.Popen[bytes]:
    """The same training as a plain process: nothing of dlq in its environment."""
    out.mkdir(parents=True)
    plain = {name: value for name, value in os.environ.items() if not name.startswith("DLQ_")}
    with (out / "output.txt").open("wb") as output:
        return subprocess.Popen(work.command(out), cwd=out, stdout=output, stderr=output, env=plain)

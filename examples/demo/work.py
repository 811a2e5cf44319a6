"""The training of the demo: six real jobs, and the same long one once more without any cluster."""

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

JOBS = Path(__file__).resolve().parent.parent / "jobs"
GPUS_PER_NODE = 8

PROBE_STEPS = 160
PROBE_S = 0.65  # of the probe on the machine that the step counts below were chosen on


@dataclass(frozen=True, slots=True)
class Work:
    """One job at its submission."""

    name: str
    script: str
    steps: int
    gpus: int  # on each node
    nodes: int = 1
    options: tuple[str, ...] = ()

    def command(self, out: Path) -> list[str]:
        """The training script as any user would start it."""
        return [
            sys.executable, str(JOBS / self.script), "--out", str(out),
            "--steps", str(self.steps), *self.options,
        ]  # fmt: skip

    def submission(self, out: Path) -> list[str]:
        """The arguments of `dlq` that submit it."""
        return [
            "submit", "--parsable", "-J", self.name, "-N", str(self.nodes),
            "--gpus-per-node", str(self.gpus), "-D", str(out),
            "--signal", "TERM",  # it saves when told to, so the pausing user is not asked
            "--", *self.command(out),
        ]  # fmt: skip

    def fitted(self, pace: float) -> Self:
        """The same for a machine that is `pace` times as fast."""
        return replace(self, steps=max(300, 10 * round(self.steps * pace / 10)))

    def held_back(self, release: Path) -> Self:
        """The same, slowly until `release` exists: no act of the demo can come too late for it."""
        return replace(self, options=(*self.options, "--slow-until", str(release)))

    def __str__(self) -> str:
        shape = f"{self.nodes} nodes x {self.gpus}" if self.nodes > 1 else str(self.gpus)
        return f"{self.name} on {shape} GPUs ({self.script}, {self.steps} steps)"


# On both nodes, and with it one that fills a node: its six GPUs soon have had their share.
DDP = Work("ddp-mlp", "ddp_mlp.py", 1000, gpus=2, nodes=2, options=("--hidden", "512"))
LONG = Work("long-mlp", "mlp.py", 2000, gpus=6)
# These fill the other node ...
BESIDE = (
    Work("kmeans", "kmeans.py", 900, gpus=2),
    Work("ensemble", "ensemble.py", 1200, gpus=2),
    Work("softmax", "softmax.py", 600, gpus=2),
)
# ... so that a job has to leave for this one.
RIVAL = Work("convnet", "convnet.py", 1000, gpus=6)


@dataclass(frozen=True, slots=True)
class Cast:
    """All jobs of a demo, sized for this machine."""

    ddp: Work
    long: Work
    beside: tuple[Work, ...]
    rival: Work

    @classmethod
    def fitted(cls, pace: float, release: Path) -> Self:
        """The jobs above, with as many steps as this machine makes in the same time, once `release`
        exists.
        """
        ddp, long, *beside, rival = (
            work.fitted(pace).held_back(release) for work in (DDP, LONG, *BESIDE, RIVAL)
        )
        return cls(ddp, long, tuple(beside), rival)

    @property
    def all(self) -> tuple[Work, ...]:
        return self.ddp, self.long, *self.beside, self.rival


def pace() -> float:
    """How fast a job trains here and now, where 1 is two quiet cores of a usual server."""
    with tempfile.TemporaryDirectory() as directory:
        began_s = time.monotonic()
        start_outside(replace(LONG, steps=PROBE_STEPS), Path(directory)).wait()
        return min(4.0, max(0.25, PROBE_S / (time.monotonic() - began_s)))


def start_outside(work: Work, out: Path) -> subprocess.Popen[bytes]:
    """The same training as a plain process: nothing of dlq in its environment.

    Jobs do not get the variables of this shell either. Those of numerical libraries would change
    the last digits.
    """
    out.mkdir(parents=True, exist_ok=True)
    of_others = ("DLQ_", "OPENBLAS_", "OMP_", "MKL_")
    plain = {name: value for name, value in os.environ.items() if not name.startswith(of_others)}
    with (out / "output.txt").open("wb") as output:
        return subprocess.Popen(work.command(out), cwd=out, stdout=output, stderr=output, env=plain)

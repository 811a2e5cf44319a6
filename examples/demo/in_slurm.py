"""A cluster of dlq whose only node is a pilot: its agent is a job of a real Slurm."""

import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from cluster import BIN, MASTER, Cluster, free_ports
from support.real_slurm import RealSlurm, missing

GPUS = 8
# Beside our programs are stand-ins for Slurm's.
_PATH = os.pathsep.join(
    place for place in os.environ.get("PATH", os.defpath).split(os.pathsep) if Path(place) != BIN
)


def why_not() -> str:
    """Why no Slurm can be started here; empty: it can."""
    return missing()


class ClusterInSlurm(Cluster):
    """It starts the Slurm too, and ends it last. Slurm's hosts are this machine."""

    def __init__(self, root: Path, *, nodes: tuple[str, ...], settings: str) -> None:
        super().__init__(root, nodes=nodes, settings=settings)
        (root / "slurm").mkdir()
        self.slurm = RealSlurm(root / "slurm", free_ports(1)[0])
        self._pilots: dict[str, str] = {}

    def __enter__(self) -> Self:
        self.slurm.__enter__()
        try:
            return super().__enter__()
        except BaseException:
            self.slurm.__exit__()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, traceback)
        self.slurm.__exit__()

    def start(self, name: str) -> None:
        """The master as a daemon, and an agent as a job of Slurm."""
        if name == MASTER:
            super().start(name)
            return
        words = f"exec {BIN / 'dlq-nodeagent'} run --config {self.config(name)}"
        sbatch = ("sbatch", "--parsable", f"--gres=gpu:{GPUS}", f"--output={self.root}/{name}.log")
        done = subprocess.run(
            (*sbatch, f"--job-name=dlq-{name}", f"--chdir={self.root}", f"--wrap={words}"),
            env={"PATH": _PATH, "SLURM_CONF": str(self.root / "slurm" / "slurm.conf")},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        self._pilots[name] = done.stdout.strip()

    def stop(self, name: str) -> None:
        """A pilot ends with its job."""
        pilot = self._pilots.pop(name, None)
        if pilot is None:
            super().stop(name)
        elif shutil.which("scancel"):
            self.slurm.said("scancel", pilot)

    def pilots(self) -> list[str]:
        """The jobs of Slurm that run its agents now."""
        return self.slurm.jobs()

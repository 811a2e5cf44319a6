"""The stand-ins as a job finds them: copied out, and run by whatever python3 there is."""

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from dlq_compat.install import install

JOB = {
    "SLURM_JOB_ID": "17",
    "SLURM_JOB_NAME": "train",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_JOB_NODELIST": "gpu-a,gpu-b",
    "SLURM_NTASKS": "4",
    "SLURM_NODEID": "1",
    "SLURMD_NODENAME": "gpu-b",
    "CUDA_VISIBLE_DEVICES": "GPU-1,GPU-2",
    "MASTER_ADDR": "10.0.0.1",
}


class Rank:
    """One rank of job 17 on the second of its two nodes, with two tasks."""

    def __init__(self, programs: Path, directory: Path) -> None:
        self.programs = programs
        self.directory = directory
        self.started: list[subprocess.Popen[str]] = []
        self.environment: Mapping[str, str] = {
            "PATH": "/usr/bin:/bin",
            "DLQ_BEAT_FILE": str(directory / "beat"),
            **JOB,
        }

    def start(self, script: str) -> "subprocess.Popen[str]":
        """The rank's main process with a script for sh; its output is read by who starts it."""
        process = subprocess.Popen(
            [self.programs / "batch", "/bin/sh", "-c", script],
            env=dict(self.environment),
            cwd=self.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def close(self) -> None:
        """End what a test has left."""
        for process in self.started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def run(self, script: str) -> tuple[int, str]:
        """Its exit code and all that it wrote."""
        process = self.start(script)
        output, _ = process.communicate(timeout=60)
        return process.returncode, output


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The installed stand-ins."""
    return install(tmp_path_factory.mktemp("stand-ins") / "slurm")


@pytest.fixture
def rank(programs: Path, tmp_path: Path) -> Iterator[Rank]:
    made = Rank(programs, tmp_path)
    yield made
    made.close()

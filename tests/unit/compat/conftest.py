"""Slurm's programs as a job finds them, and the two ranks of a job started by hand."""

import os
import secrets
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from dlq_compat.install import install
from dlq_nodeagent.shim.binary import STEPS_NAME, ensure_program

JOB = {
    "DLQ_JOB_ID": "17",
    "SLURM_JOB_ID": "17",
    "SLURM_JOB_NAME": "train",
    "SLURM_JOB_USER": "ada",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_JOB_NODELIST": "gpu-a,gpu-b",
    "SLURM_NTASKS": "4",
}
NODES = ("gpu-a", "gpu-b")


def free_ports(count: int) -> list[int]:
    """Ports of loopback without a listener."""
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


class TwoNodes:
    """Job 17 of two nodes with two GPUs each: both ranks run on this host."""

    def __init__(self, programs: Path, directory: Path, *, cores: int = 0) -> None:
        self.programs = programs
        self.directory = directory
        self.started: list[subprocess.Popen[str]] = []
        ports = free_ports(2)
        peers = [
            f"{name} 127.0.0.1 {port} 2 {cores}" for name, port in zip(NODES, ports, strict=True)
        ]
        self.shared = {
            "PATH": "/usr/bin:/bin",
            "DLQ_STEP_PEERS": ";".join(peers),
            "DLQ_STEP_KEY": secrets.token_hex(32),
            **JOB,
        }
        for rank in range(2):
            self.job_dir(rank).mkdir()

    def job_dir(self, rank: int) -> Path:
        """The directory that an agent makes for each rank."""
        return self.directory / f"rank{rank}"

    def environment(self, rank: int) -> Mapping[str, str]:
        """The variables of a rank's main process."""
        return {
            **self.shared,
            "DLQ_STEP_RANK": str(rank),
            "DLQ_BEAT_FILE": str(self.job_dir(rank) / "beat"),
            "SLURM_NODEID": str(rank),
            "SLURMD_NODENAME": NODES[rank],
            "CUDA_VISIBLE_DEVICES": f"GPU-{rank}0,GPU-{rank}1",
        }

    def start_rank(self, rank: int, *words: str) -> "subprocess.Popen[str]":
        """Its main process; its output is read by the caller."""
        process = subprocess.Popen(
            [self.programs / "batch", *words],
            env=dict(self.environment(rank)),
            cwd=self.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def start(self, script: str) -> "subprocess.Popen[str]":
        """Both ranks; the first runs a script for sh."""
        self.start_rank(1, "--hold")
        return self.start_rank(0, "/bin/sh", "-c", script)

    def run(self, script: str) -> tuple[int, str]:
        """The script's exit code and all that it wrote."""
        process = self.start(script)
        output, _ = process.communicate(timeout=60)
        return process.returncode, output

    def close(self) -> None:
        """End what a test has left."""
        for process in self.started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The installed programs."""
    place = tmp_path_factory.mktemp("stand-ins") / "slurm"
    return install(place, steps=ensure_program(STEPS_NAME))


@pytest.fixture
def job(programs: Path, tmp_path: Path) -> Iterator[TwoNodes]:
    made = TwoNodes(programs, tmp_path)
    yield made
    made.close()


@pytest.fixture
def counted_job(programs: Path, tmp_path: Path) -> Iterator[TwoNodes]:
    """With four cores on each node, which steps share."""
    made = TwoNodes(programs, tmp_path, cores=4)
    yield made
    made.close()

"""Starts example jobs as the agent would, attempt after attempt, and stops them at chosen steps."""

import fcntl
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from dlq_train import Checkpoint, checkpoint
from support.ports import free_ports

JOBS = Path(__file__).resolve().parents[2] / "examples" / "jobs"
_SMALLEST_PIPE_BYTES = 4096
# A job gets no variable that only its submitter's shell has, and these change the last digits.
_JOBS_ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("OPENBLAS_", "OMP_", "MKL_"))
}


@dataclass
class TrainingJob:
    """One job under `root`: its output, its notices, and a checkpoint directory per attempt."""

    root: Path
    script: str
    arguments: list[str]
    nnodes: int = 1
    attempt: int = 0
    port: int = 0
    ranks: list["subprocess.Popen[str]"] = field(default_factory=list)

    @property
    def loss_log(self) -> bytes:
        return (self.root / "out" / "loss.jsonl").read_bytes()

    @property
    def weights(self) -> bytes:
        return (self.root / "out" / "weights.npz").read_bytes()

    def __post_init__(self) -> None:
        (self.root / "17").mkdir(parents=True)

    def start(self) -> None:
        """The next attempt; it resumes from the newest committed checkpoint of all before it."""
        promoted = self._newest()
        self.attempt += 1
        self.port = free_ports(1)[0]
        self.ranks = [self._start_rank(rank, promoted) for rank in range(self.nnodes)]

    def run_to(self, step: int) -> None:
        """Read rank 0's progress until it has done `step` steps; the pipe stops it soon after."""
        output = self.ranks[0].stdout
        assert output is not None
        for line in output:
            if line.startswith(f"step {step}/"):
                return
        raise AssertionError(f"{self.script} ended before step {step}: {self.ranks[0].wait()}")

    def notify(self, rank: int = 0) -> None:
        self._notice(rank).touch()

    def kill(self, rank: int = 0, number: signal.Signals = signal.SIGKILL) -> None:
        self.ranks[rank].send_signal(number)

    def end(self) -> list[int]:
        """Wait for all ranks; their exit codes."""
        for process in self.ranks:
            process.communicate(timeout=600)
        return [process.returncode for process in self.ranks]

    def abandon(self) -> None:
        """Kill whatever still runs, as when a test fails half-way."""
        for process in self.ranks:
            process.kill()
            process.communicate()

    @property
    def done(self) -> bool:
        return self._file("done", 0).exists()

    def newest_step(self) -> int:
        """The step that the next attempt would go on from."""
        newest = self._newest()
        return 0 if newest is None else newest.step

    def _newest(self) -> Checkpoint | None:
        attempts = (self.root / "17").iterdir()
        for directory in sorted(attempts, key=lambda path: int(path.name), reverse=True):
            for newest in checkpoint.committed(directory):
                return newest
        return None

    def _start_rank(self, rank: int, promoted: Checkpoint | None) -> "subprocess.Popen[str]":
        checkpoint_dir = self.root / "17" / str(self.attempt)
        checkpoint_dir.mkdir(exist_ok=True)
        every = "1" if rank == 0 else "1000000"
        process = subprocess.Popen(
            [sys.executable, JOBS / self.script, "--out", self.root / "out",
             "--print-every", every, *self.arguments],
            stdout=subprocess.PIPE,
            text=True,
            env=_JOBS_ENVIRONMENT | {
                "DLQ_JOB_ID": "17",
                "DLQ_ATTEMPT": str(self.attempt),
                "DLQ_FENCE": f"1.{self.attempt}",
                "DLQ_NODE_RANK": str(rank),
                "DLQ_NNODES": str(self.nnodes),
                "DLQ_MASTER_ADDR": "127.0.0.1",
                "DLQ_MASTER_PORT": str(self.port),
                "DLQ_CHECKPOINT_DIR": str(checkpoint_dir),
                "DLQ_RESUME_FROM": str(promoted.path) if promoted else "",
                "DLQ_PREEMPT_FILE": str(self._notice(rank)),
                "DLQ_BEAT_FILE": str(self._file("beat", rank)),
                "DLQ_DONE_FILE": str(self._file("done", rank)),
            },
        )  # fmt: skip
        assert process.stdout is not None
        fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, _SMALLEST_PIPE_BYTES)
        return process

    def _notice(self, rank: int) -> Path:
        return self._file("preempt", rank)

    def _file(self, name: str, rank: int) -> Path:
        return self.root / f"{name}.{self.attempt}.{rank}"

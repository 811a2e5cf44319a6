"""One training of an example on a cluster, as its user disturbs it, and the same one
undisturbed.
"""

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlq.v1 import job_pb2
from support.users_view import UsersView

ROOT = Path(__file__).resolve().parents[2]
TORCH = (ROOT / ".venv-torch").resolve()
FRAMEWORKS = (ROOT / ".venv-frameworks").resolve()
PYTHON = FRAMEWORKS / "bin" / "python"
EXAMPLES = ROOT / "examples" / "frameworks"
ALL_GPUS = ("-N", "2", "--gpus-per-node", "8")

_BEGINS = re.compile(r"trains from step (\d+)")


@dataclass(frozen=True, kw_only=True)
class Training:
    """A script of the examples and what it trains: small steps, few of them.

    It is as slow as it has to be as long as its file `unhurried` is there, so that whoever disturbs
    it never comes too late.
    """

    script: Path
    environment: Path = FRAMEWORKS
    out: str = "--out"
    size: tuple[str, ...] = ("--steps", "400", "--hidden", "64")

    def command(self, out: Path, *more: str, torchrun: tuple[str, ...] = ()) -> list[str]:
        """By plain Python, or by torchrun with these options."""
        python = [str(self.environment / "bin" / "python")]
        starter = [*python, "-m", "torch.distributed.run", *torchrun] if torchrun else python
        return [*starter, str(self.script), self.out, str(out), *self.size, *more]


HF = Training(script=EXAMPLES / "hf_digits.py")
LIGHTNING = Training(script=EXAMPLES / "lightning_digits.py")
SUBMITIT = Training(script=EXAMPLES / "submitit_digits.py")
PLAIN = Training(
    script=ROOT / "examples" / "torch" / "train_ddp.py", environment=TORCH, out="--checkpoint-dir"
)


class Undisturbed:
    """The same trainings outside of dlq, each of them once, and by itself on the machine."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._digests: dict[tuple[Training, int, tuple[str, ...]], str] = {}

    def digest(self, training: Training, *more: str, ranks: int = 1) -> str:
        """The hash of its final weights."""
        key = (training, ranks, more)
        if key not in self._digests:
            self._digests[key] = self._run(training, more, ranks)
        return self._digests[key]

    def _run(self, training: Training, more: tuple[str, ...], ranks: int) -> str:
        assert training.environment.exists(), "make e2e makes the environments"
        out = Path(tempfile.mkdtemp(dir=self._root))
        alone = ("--standalone", "--nproc-per-node", str(ranks)) if ranks > 1 else ()
        done = subprocess.run(
            training.command(out, *more, torchrun=alone),
            cwd=training.script.parent,
            env={
                name: value
                for name, value in os.environ.items()
                if not name.startswith(("DLQ_", "SLURM", "OPENBLAS_", "OMP_", "MKL_"))
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        # c10d may abort its process after the training has ended: the written hash is the proof.
        assert done.returncode == 0 or (out / "final.sha256").exists(), done.stdout
        return (out / "final.sha256").read_text()


class Trained:
    """A job that trains, as its user disturbs it."""

    def __init__(
        self, user: UsersView, job: str, *, unhurried: Path, output: Path | None = None
    ) -> None:
        """`output` is the file that all its attempts write to, where that is not the job's log."""
        self.user = user
        self.job = job
        self._unhurried = unhurried
        self._file = output

    def wait_for_start(self, count: int) -> None:
        """Until it trains for the `count`-th time."""

        def begun(job: job_pb2.Job) -> bool:
            assert job.hold_kind != job_pb2.HOLD_KIND_POISON, self.user.tale(self.job)
            return job.HasField("attempt_state") and len(self._begins(job.attempt_count)) >= count

        self.user.wait(self.job, begun, f"it trains for the {count}. time")

    def begins(self) -> list[int]:
        """The steps at which its attempts began to train, as its output says."""
        return self._begins(len(self.user.show(self.job)["attempts"]))

    def _begins(self, attempts: int) -> list[int]:
        if self._file is not None:
            texts = [self._file.read_text() if self._file.exists() else ""]
        else:
            texts = [self.user.output(self.job, 1 + earlier) for earlier in range(attempts)]
        return [int(step) for text in texts for step in _BEGINS.findall(text)]

    def push_away(self) -> None:
        """Let a better-placed job take all GPUs for a moment."""
        self.wait_until_it_sinks()
        rival = self.user.submit(*ALL_GPUS, "--", sys.executable, "-c", "print('all mine')")
        assert self.user.wait_for_end(rival).state == job_pb2.JOB_STATE_COMPLETED

    def wait_until_it_sinks(self) -> None:
        """Until a new job is placed before it."""
        self.user.wait(self.job, lambda job: job.level > 0, "it sinks")

    def pause(self) -> None:
        """As its user might do before lunch."""
        self.user.dlq("pause", self.job)
        self.user.wait(self.job, _is_paused, "it is paused")

    def resume(self) -> None:
        """As its user might do after lunch."""
        self.user.dlq("resume", self.job)

    def hurry(self) -> None:
        """Nobody will disturb it any more."""
        self._unhurried.unlink()

    def attempts(self) -> list[tuple[str, str | None, int]]:
        """How each attempt ended, why, and with which exit code."""
        told = []
        for attempt in self.user.show(self.job)["attempts"]:
            (rank,) = attempt["ranks"]
            told.append((attempt["state"], attempt["stop_cause"], rank["exit_code"]))
        return told

    def end(self) -> dict[str, Any]:
        """Its facts once it has completed."""
        job = self.user.wait_for_end(self.job)
        assert job.state == job_pb2.JOB_STATE_COMPLETED, self.user.tale(self.job)
        return self.user.show(self.job)


def make_out(directory: Path) -> tuple[Path, Path]:
    """Where a training writes, and in it the file that keeps it unhurried."""
    out = directory / "out"
    out.mkdir()
    unhurried = out / "unhurried"
    unhurried.touch()
    return out, unhurried


def _is_paused(job: job_pb2.Job) -> bool:
    return job.hold_kind == job_pb2.HOLD_KIND_PAUSED and not job.HasField("attempt_state")

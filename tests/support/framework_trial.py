"""One training by a framework on a cluster, and the same one that nobody disturbs beside it."""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dlq.v1 import job_pb2
from support.users_view import UsersView
from support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
PYTHON = (ROOT / ".venv-frameworks").resolve() / "bin" / "python"
EXAMPLES = ROOT / "examples" / "frameworks"
# Slow enough that commands of `dlq` reach it in the middle, on a busy machine too.
TRAINING = ("--steps", "2500", "--hidden", "1024")
ALL_GPUS = ("-N", "2", "--gpus-per-node", "8")

_BEGINS = re.compile(r"trains from step (\d+)")


class Undisturbed:
    """The same training outside of dlq; it ends with the block."""

    def __init__(self, directory: Path, script: str, *arguments: str) -> None:
        assert PYTHON.exists(), "make e2e makes the environment for frameworks"
        directory.mkdir()
        self._directory = directory
        self._command = [str(PYTHON), str(EXAMPLES / script), "--out", str(directory), *arguments]

    def __enter__(self) -> Self:
        plain = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("DLQ_", "SLURM"))
        }
        with (self._directory / "output.txt").open("wb") as output:
            self._run = subprocess.Popen(
                self._command, cwd=EXAMPLES, env=plain, stdout=output, stderr=output
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._run.kill()
        self._run.wait()

    def digest(self) -> str:
        """The hash of its final weights, once it has them."""
        path = self._directory / "final.sha256"
        wait_until(
            lambda: path.exists() or self._run.poll(), what="the undisturbed run", timeout_s=300.0
        )
        assert path.exists(), (self._directory / "output.txt").read_text()
        return path.read_text()


class Trained:
    """A job that trains, as its user disturbs it."""

    def __init__(self, user: UsersView, job: str, *, output: Path | None = None) -> None:
        """`output` is the file that all its attempts write to, where that is not the job's log."""
        self.user = user
        self.job = job
        self._file = output

    def wait_for_start(self, count: int) -> None:
        """Until it trains for the `count`-th time."""

        def begun(job: job_pb2.Job) -> bool:
            assert job.hold_kind != job_pb2.HOLD_KIND_POISON, self.user.tale(self.job)
            return len(self.begins()) >= count and job.HasField("attempt_state")

        self.user.wait(self.job, begun, f"it trains for the {count}. time")

    def begins(self) -> list[int]:
        """The steps at which its attempts began to train, as its output says."""
        if self._file is not None:
            text = self._file.read_text() if self._file.exists() else ""
            return [int(step) for step in _BEGINS.findall(text)]
        attempts = self.user.show(self.job)["attempts"]
        return [
            int(step)
            for number in range(1, len(attempts) + 1)
            for step in _BEGINS.findall(self.output(number))
        ]

    def output(self, attempt: int) -> str:
        """What one attempt wrote."""
        try:
            return self.user.dlq("logs", "-n", "all", f"{self.job}.{attempt}")
        except subprocess.CalledProcessError:  # nothing is there to be read yet
            return ""

    def push_away(self) -> None:
        """Let a better-placed job take all GPUs for a moment."""
        self.user.wait(self.job, lambda job: job.level > 0, "it sinks")
        rival = self.user.submit(*ALL_GPUS, "--", sys.executable, "-c", "print('all mine')")
        assert self.user.wait_for_end(rival).state == job_pb2.JOB_STATE_COMPLETED

    def pause_and_resume(self) -> None:
        """As its user might do over lunch."""
        self.user.dlq("pause", self.job)
        self.user.wait(self.job, _is_paused, "it is paused")
        self.user.dlq("resume", self.job)

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


def _is_paused(job: job_pb2.Job) -> bool:
    return job.hold_kind == job_pb2.HOLD_KIND_PAUSED and not job.HasField("attempt_state")

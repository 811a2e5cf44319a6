"""Real jobs under `dlq profile run`: their own truth beside what their traffic told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dlq_profiler.directory import profile_directories
from dlq_profiler.injection import built, injected
from dlq_profiler.records.control import write_control
from dlq_profiler.results import JobProfile

ROOT = Path(__file__).resolve().parents[2]
TORCHRUN = ROOT / ".venv-torch" / "bin" / "torchrun"
JOBS = ROOT / "tests" / "support"
# A mean of so few iterations on a busy host; two batches have to be off.
MOST_PERIOD_ERROR = 0.10
TIMEOUT_S = 600.0


class Profiled(NamedTuple):
    """What a job said of itself, and what its traffic told."""

    truth: dict[str, Any]
    profile: JobProfile

    @property
    def period_error(self) -> float:
        assert self.profile.period_s is not None
        return abs(self.profile.period_s / float(self.truth["period_s"]) - 1.0)


def torch_job(
    directory: Path, model: str, ranks: int, *options: str, on: bool = True, hook: bool = False
) -> Profiled:
    """A training by DistributedDataParallel under torchrun."""
    command: tuple[str | Path, ...] = (
        TORCHRUN,
        "--nproc-per-node",
        str(ranks),
        JOBS / "ddp_job.py",
        model,
        *options,
    )
    return profiled(directory, command, on=on, hook=hook)


def server_job(directory: Path, model: str, *options: str) -> Profiled:
    """A training by workers and parameter servers."""
    return profiled(directory, (sys.executable, JOBS / "server_job.py", model, *options))


def profiled(
    directory: Path, command: Sequence[str | Path], *, on: bool = True, hook: bool = False
) -> Profiled:
    """Run a command that ends well and prints its truth as one JSON object."""
    directory.mkdir()
    parts = built()
    assert parts is not None, "make setup builds the library"
    parts = parts if hook else parts._replace(hook=None)
    write_control(directory, on=on)
    done = subprocess.run(
        command, env={**os.environ, **injected(os.environ, directory, parts)}, check=False,
        capture_output=True, text=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    profile, refused = profile_directories([directory])
    assert refused == ()
    return Profiled(json.loads(done.stdout), profile)


def timely(tmp_path: Path, run: Callable[[Path], Profiled]) -> Profiled:
    """The run whose period is right, of two batches: a busy host may spoil one, hardly both."""
    first = run(tmp_path / "batch1")
    if first.profile.period_s is None or first.period_error <= MOST_PERIOD_ERROR:
        return first
    return run(tmp_path / "batch2")

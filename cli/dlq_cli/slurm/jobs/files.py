"""Where a job's output is, in Slurm's words: the patterns of its spec, filled in."""

from __future__ import annotations

from dlq_cli.slurm.jobs.seen import SeenJob

_INPUT = "/dev/null"


def stdout_of(job: SeenJob) -> str:
    return _path(job, "stdout_path")


def stderr_of(job: SeenJob) -> str:
    return _path(job, "stderr_path") or _path(job, "stdout_path")


def stdin_of(job: SeenJob) -> str:
    return _INPUT


def _path(job: SeenJob, name: str) -> str:
    return ""

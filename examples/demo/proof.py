"""Checks the promises of the demo; a broken one is an exception with the reason."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import processes
from dlq.v1 import job_pb2


class ProofFailed(Exception):
    """The demo has shown the contrary of its promise."""


def same_training(inside: Path, outside: Path) -> str:
    """Loss curve and final weights of two runs are equal, byte by byte."""
    for name in ("loss.jsonl", "weights.npz"):
        ours, theirs = (inside / name).read_bytes(), (outside / name).read_bytes()
        if ours != theirs:
            raise ProofFailed(f"{inside / name} differs from {outside / name}")
    steps = (inside / "loss.jsonl").read_bytes().count(b"\n")
    return f"its {steps} losses and final weights are bit-identical to an undisturbed run"


def moved(nodes: Sequence[str]) -> str:
    """A job that was preempted went on elsewhere; `nodes` are those of its attempts, in order."""
    if len(set(nodes)) < 2:
        raise ProofFailed(f"the preempted job was never moved: {nodes}")
    return "ran on " + ", then ".join(nodes)


def nothing_restarted(
    before: Mapping[tuple[str, str, str], int],
    after: Mapping[tuple[str, str, str], int],
    ended: set[str],
) -> str:
    """Every process of a job from before a kill still runs, or its job has ended since."""
    for key, pid in before.items():
        if after.get(key) != pid and key[0] not in ended:
            raise ProofFailed(f"job {key[0]} had process {pid}, now {after.get(key)}")
    kept = sum(after.get(key) == pid for key, pid in before.items())
    ended_meanwhile = "" if kept == len(before) else ", the others have come to their end"
    return f"{kept} of {len(before)} training processes never noticed{ended_meanwhile}"


def all_completed(jobs: Sequence[job_pb2.Job], expected: int) -> str:
    """Every job that was acknowledged has completed, with one attempt more than preemptions."""
    if len(jobs) != expected:
        raise ProofFailed(f"{expected} jobs were submitted, {len(jobs)} are known")
    for job in jobs:
        if job.state != job_pb2.JOB_STATE_COMPLETED:
            raise ProofFailed(f"job {job.job_id} ended {job_pb2.JobState.Name(job.state)}")
        if job.attempt_count != job.preemption_count + 1:
            raise ProofFailed(
                f"job {job.job_id} was started {job.attempt_count} times"
                f" and preempted {job.preemption_count} times"
            )
    return f"all {expected} jobs completed, none started more often than it was preempted"


def same_attempt(before: job_pb2.Job, after: job_pb2.Job) -> str:
    """A job went on in the attempt it was in, and its agent tells the master of new steps."""
    if after.attempt_count != before.attempt_count:
        raise ProofFailed(
            f"job {after.job_id} was in attempt {before.attempt_count}, now {after.attempt_count}"
        )
    if after.progress.step <= before.progress.step:
        raise ProofFailed(f"job {after.job_id} is stuck at step {after.progress.step}")
    return (
        f"attempt {after.attempt_count} of job {after.job_id} went on"
        f" from step {before.progress.step} to {after.progress.step}"
    )


def nothing_left(root: Path, cgroups: set[str]) -> str:
    """No process of the demo lives, and none of the control groups that its jobs were in exists."""
    left = processes.belonging_to(root)
    if left:
        raise ProofFailed("still running: " + "; ".join(f"{p.pid} {p.command}" for p in left))
    groups = processes.existing(cgroups)
    if groups:
        raise ProofFailed("still there: " + ", ".join(groups))
    none_of_groups = f" and none of {len(cgroups)} control groups" if cgroups else ""
    return f"no process{none_of_groups} is left"

"""Ways to change a job: their share of a completion.

    python -m benchmarks.planning.drafts [--json]

A job takes two steps of its state machine per completion. A step copies the value with some fields
changed. Four ways are compared: a list changed by positions, a mapping of changes
(`model.values.changer`), `_replace`, and a typed mutable class with slots. The
figures are CPU times of one copy with three changed fields, the best of seven. Beside them is the
extra time of the last three per completion. A way that costs more than 5 % of a completion is not
taken.
"""

from __future__ import annotations

import argparse
import timeit
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.planning.tick import clock_reading_s, completions, policy_named
from benchmarks.support.report import Report
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.job_changes import changed
from dlq_master.model.resources import Request
from dlq_master.model.values import maker

STEPS = 2  # of a job, per completion
COPIES = 20_000
_LEVEL, _VERSION, _ATTAINED = map(Job._fields.index, ("level", "version", "attained_gpu_s"))
_job = maker(Job)


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    report = Report.begin("planning.drafts", parser)
    whole_s = completions(report, policy_named("tiresias-las"), 1000, clock_reading_s())
    job = Job(
        job_id=JobId(1), user="u", name="n", request=Request(gpus=1), submit_time_s=0.0,
        queue="q", priority_base=0,
    )  # fmt: skip
    by_position_s = best_s(partial(positional, job))
    report.figure("copy of a job by positions", 1e6 * by_position_s, "us")
    for name, copy in (
        ("changes", mapped),
        ("_replace", replaced),
        ("a typed class", slotted()),
    ):
        copy_s = best_s(partial(copy, job))
        report.figure(f"copy of a job by {name}", 1e6 * copy_s, "us")
        share = 100.0 * STEPS * (copy_s - by_position_s) / whole_s
        report.figure(f"{name}: extra share of a completion", share, "%", at_most=5)
    report.end()


def positional(job: Job) -> Job:
    draft = list(job)
    draft[_LEVEL], draft[_VERSION], draft[_ATTAINED] = 1, 3, 2.0
    return _job(draft)


def mapped(job: Job) -> Job:
    return changed(job, {"level": 1, "version": 3, "attained_gpu_s": 2.0})


def replaced(job: Job) -> Job:
    return job._replace(level=1, version=3, attained_gpu_s=2.0)


def slotted() -> Callable[[Job], Job]:
    """A copy through a mutable class with a slot for each field."""
    fields = Job._fields
    assign = "\n".join(f"        self.{field} = {field}" for field in fields)
    source = (
        f"class Draft:\n    __slots__ = {fields!r}\n"
        f"    def __init__(self, {', '.join(fields)}):\n{assign}\n"
        f"    def values(self):\n        return ({', '.join('self.' + one for one in fields)},)\n"
    )
    made: dict[str, Any] = {}
    exec(source, made)
    kind = made["Draft"]

    def copy(job: Job) -> Job:
        draft = kind(*job)
        draft.level, draft.version, draft.attained_gpu_s = 1, 3, 2.0
        return _job(draft.values())

    return copy


def best_s(work: Callable[[], object]) -> float:
    """Seconds of one call, in the fastest of seven runs."""
    return min(timeit.repeat(work, number=COPIES, repeat=7)) / COPIES


if __name__ == "__main__":
    main()

"""Jobs by the ids that Slurm's programs are given. Only existing jobs are returned, without an
error for others.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlq.v1 import job_pb2
from dlq_cli.lists.select import several_jobs
from dlq_client.jobs import Jobs
from dlq_common.errors import NotFound


def known_jobs(jobs: Jobs, ids: Sequence[str]) -> Sequence[job_pb2.Job]:
    """The jobs of `17`, `12_4`, `12`, `12_[0-3]`; of a step such as `17.batch` its job."""
    words = list(dict.fromkeys(each.partition(".")[0] for each in ids))
    try:
        return _listed(jobs, words)
    except NotFound:
        pass
    found: dict[str, job_pb2.Job] = {}
    for word in words:
        try:
            found.update((job.job_id, job) for job in _listed(jobs, [word]))
        except NotFound:
            continue
    return list(found.values())


def _listed(jobs: Jobs, words: Sequence[str]) -> Sequence[job_pb2.Job]:
    return jobs.list(job_ids=several_jobs(jobs, words)).jobs

"""The present use of teams and their members, counted over the published jobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dlq_master.model.jobs.accounts import team_of
from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.job import Job


@dataclass(slots=True)
class TeamUse:
    """Of one team, or of one member."""

    gpus: int = 0
    borrowed_gpus: int = 0
    guaranteed_gpus: int = 0
    running: int = 0
    waiting: int = 0
    jobs: int = 0  # that have not ended
    usage_gpu_s: float = 0.0  # lately
    ratio: float | None = None  # of that to what is due


def count(
    held: Iterable[tuple[Job, int]],
    jobs: Iterable[Job],
    used: Mapping[str, float],
    ratios: Mapping[str, float],
) -> Mapping[str, TeamUse]:
    """Team, or account (model/jobs/accounts.py) -> what it has. `held`: jobs that hold GPUs, and
    how many; `used`: by account; `ratios`: as policy/order/share.py has them."""
    found: dict[str, TeamUse] = defaultdict(TeamUse)
    for job, gpus in held:
        for name in (team_of(job.account), job.account):
            use = found[name]
            use.running += 1
            if job.request.without_gpus:
                continue
            use.gpus += gpus
            if job.band is Band.BORROW:
                use.borrowed_gpus += gpus
    for account, gpu_s in used.items():
        for name in (team_of(account), account):
            found[name].usage_gpu_s += gpu_s
    for name, ratio in ratios.items():
        found[name].ratio = ratio
    for job in jobs:
        for name in (team_of(job.account), job.account):
            found[name].jobs += not job.ended
            if job.waiting:
                found[name].waiting += 1
            if job.promised is not None and not job.ended:
                found[name].guaranteed_gpus += job.request.gpus
    return found

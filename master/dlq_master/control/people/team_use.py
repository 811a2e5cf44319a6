"""The present use of teams and their members.

Jobs are counted as they change. A reader of teams looks only at jobs that hold GPUs.
"""

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


@dataclass(slots=True)
class _AccountJobs:
    there: int = 0
    waiting: int = 0
    guaranteed_gpus: int = 0


class AccountTally:
    """The jobs of each account that have not ended."""

    def __init__(self) -> None:
        """Of no jobs."""
        self.by_account: defaultdict[str, _AccountJobs] = defaultdict(_AccountJobs)

    def change(self, before: Job | None, job: Job) -> None:
        """This one is new, or no longer what it was."""
        for one, sign in ((before, -1), (job, 1)):
            if one is None or one.ended:
                continue
            counts = self.by_account[one.account]
            counts.there += sign
            counts.waiting += sign * one.waiting
            if one.promised is not None:
                counts.guaranteed_gpus += sign * one.request.gpus

    def asking(self) -> set[str]:
        """Accounts with jobs that wait."""
        return {account for account, counts in self.by_account.items() if counts.waiting}


def count(
    held: Iterable[tuple[Job, int]],
    tally: AccountTally,
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
    for account, counts in tally.by_account.items():
        for name in (team_of(account), account):
            use = found[name]
            use.jobs += counts.there
            use.waiting += counts.waiting
            use.guaranteed_gpus += counts.guaranteed_gpus
    return found

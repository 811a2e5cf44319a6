"""How many jobs have not ended, by user, by account, by team and by queue, for the limits of
submissions.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

from dlq_master.model.jobs.accounts import team_of
from dlq_master.model.jobs.job import Job


def places(job: Job) -> tuple[str, ...]:
    """Everything that a job is counted for."""
    return _places(job.user, job.account, job.queue)


@lru_cache(maxsize=4096)
def _places(user: str, account: str, queue: str) -> tuple[str, ...]:
    """Jobs of one user in one queue share theirs."""
    return (
        of_user(user),
        of_account(account),
        of_team(team_of(account)),
        of_queue(queue),
        of_queue(queue, user),
    )


def of_user(user: str) -> str:
    """All of a user's."""
    return f"user {user}"


def of_account(account: str) -> str:
    """Those of a user in a team."""
    return f"account {account}"


def of_team(team: str) -> str:
    """All of a team's."""
    return f"team {team}"


def of_queue(queue: str, user: str = "") -> str:
    """All in a queue, or one user's."""
    return f"queue {queue} {user}"


def gpus_of(user: str) -> str:
    """The GPUs of a user's interactive jobs, each at its largest size."""
    return f"gpus {user}"


class JobCounts:
    """Counts of jobs that have not ended, and by user the GPUs of those in one queue. Counts are as
    committed; the turn itself counts its new jobs.
    """

    def __init__(self, interactive: str = "") -> None:
        self._jobs: Counter[str] = Counter()
        self._interactive = interactive
        self.gpus: Counter[str] = Counter()

    def __getitem__(self, place: str) -> int:
        return self._jobs[place]

    def by_user(self, place: str) -> dict[str, int]:
        """How many of a team's, or a queue's, are whose; empty for one user's own. O(users)."""
        kind, _, name = place.partition(" ")
        begin = {"team": f"account {name}/", "queue": place}.get(kind)
        if begin is None or (kind == "queue" and not name.endswith(" ")):
            return {}
        return {
            key.removeprefix(begin): count
            for key, count in self._jobs.items()
            if count > 0 and key.startswith(begin) and key != begin
        }

    def change(self, before: Job | None, job: Job) -> None:
        """A job has another value."""
        if self._interactive:
            self._change_gpus(before, job)
        if before is not None and before.ended is job.ended and _same_places(before, job):
            return
        if before is not None and not before.ended:
            for place in places(before):
                self._jobs[place] -= 1
        if not job.ended:
            for place in places(job):
                self._jobs[place] += 1

    def _change_gpus(self, before: Job | None, job: Job) -> None:
        for one, sign in ((before, -1), (job, 1)):
            if one is not None and one.queue == self._interactive and not one.ended:
                self.gpus[one.user] += sign * one.request.most_gpus


def _same_places(before: Job, job: Job) -> bool:
    return (before.user, before.queue, before.team) == (job.user, job.queue, job.team)

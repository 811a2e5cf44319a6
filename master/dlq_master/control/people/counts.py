"""How many jobs have not ended, by user, by account, by team and by queue, for the limits of
submissions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from dlq_master.model.jobs.accounts import team_of
from dlq_master.model.jobs.job import Job


def places(job: Job) -> Iterator[str]:
    """Everything that a job is counted for."""
    account = job.account
    yield of_user(job.user)
    yield of_account(account)
    yield of_team(team_of(account))
    yield of_queue(job.queue)
    yield of_queue(job.queue, job.user)


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


class JobCounts:
    """Counts of jobs that have not ended. Counts are as committed; the turn itself counts its new
    jobs.
    """

    def __init__(self) -> None:
        self._jobs: Counter[str] = Counter()

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
        if before is not None and before.ended is job.ended and _same_places(before, job):
            return
        if before is not None and not before.ended:
            self._jobs.subtract(places(before))
        if not job.ended:
            self._jobs.update(places(job))


def _same_places(before: Job, job: Job) -> bool:
    return (before.user, before.queue, before.team) == (job.user, job.queue, job.team)

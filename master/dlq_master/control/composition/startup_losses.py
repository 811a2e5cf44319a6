"""Facts that a start finds missing although earlier masters acknowledged them. The master says so,
and serves.

To refuse would lose more: jobs that run end by themselves when nobody renews their leases. The
report of a loss: an error in the log, an event of the journal, and a metric that stays until the
next start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from dlq_master.model.event import Fact
from dlq_master.store.commit_record import CommittedBatch

MOST_NAMED: Final = 32


class Losses(NamedTuple):
    """`batches`: acknowledged, and not in the database. `audit`: the part missing from the audit's
    files; "" = nothing.
    """

    batches: Sequence[CommittedBatch] = ()
    audit: str = ""

    def events(self) -> Iterator[tuple[str, Mapping[str, Fact], str]]:
        """Kind, facts and cause of each event to be noted."""
        if self.batches:
            yield "commits_lost", _facts(self.batches), self.words()
        if self.audit:
            yield "audit_lost", {}, self.audit

    def words(self) -> str:
        """The losses, for people."""
        first, last = self.batches[0].number, self.batches[-1].number
        which = f"batch {first}" if first == last else f"batches {first} to {last}"
        jobs = _jobs(self.batches)
        named = f"changes of jobs {', '.join(map(str, jobs))}" if jobs else "no change of a job"
        more = " and others" if sum(one.job_count for one in self.batches) > len(jobs) else ""
        return f"acknowledged, and not in the database any more: {which} ({named}{more})"


NO_LOSSES: Final = Losses()


def _facts(batches: Sequence[CommittedBatch]) -> Mapping[str, Fact]:
    return {
        "first_batch": batches[0].number,
        "last_batch": batches[-1].number,
        "jobs": ",".join(map(str, _jobs(batches))),
        "first_event": min((one.first_event for one in batches if one.first_event), default=0),
        "last_event": max(one.last_event for one in batches),
    }


def _jobs(batches: Sequence[CommittedBatch]) -> list[int]:
    return sorted({job for one in batches for job in one.jobs})[:MOST_NAMED]

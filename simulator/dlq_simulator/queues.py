"""The queue of a trace's row, and each queue's default share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from dlq_master.policy.partition.quotas import Quotas
from dlq_master.policy.policy import Policy
from dlq_simulator.errors import UsageError
from dlq_simulator.workload import Trace, TraceJob

# `--set queues=...`: the column that gives the queue of a row.
QUEUES: Mapping[str, Callable[[TraceJob], str]] = MappingProxyType(
    {
        "class": lambda row: "be" if row.kind == "be" else "slo",
        "vc": lambda row: row.vc or "default",
        "user": lambda row: row.user or "default",
    }
)


class TraceQueues:
    """The queues of a trace under one policy. A policy without quotas or a floor has one queue for
    all. The queue with a floor comes first.
    """

    def __init__(self, trace: Trace, policy: Policy, by: str) -> None:
        """UsageError if a quota names a queue in which no job of the trace stands."""
        self.policy = policy
        self._of = QUEUES[by]
        self._ranks: dict[str, int] = {}
        jobs = Counter(self._of(row) for row in trace.jobs)
        if policy.queue_floor is not None:
            first = policy.queue_floor.queue
            self._known(trace, jobs, first, "queue_floor", by)
            self._ranks = {name: int(name != first) for name in jobs}
        if policy.partition.quotas is None:
            return
        given = policy.partition.quotas
        quotas = given if given.shares else _by_jobs(jobs)
        for name, _ in quotas.shares:
            self._known(trace, jobs, name, "quota", by)
        self.policy = replace(policy, divides=policy.partition.divided(quotas))
        named = [name for name, _ in quotas.shares]
        others = sorted(set(jobs) - set(named))
        # Jobs without a quota share the rest as one line, in the order of arrival.
        self._ranks = {name: rank for rank, name in enumerate(named)}
        self._ranks.update(dict.fromkeys(others, len(named)))

    @staticmethod
    def _known(trace: Trace, jobs: Counter[str], name: str, setting: str, by: str) -> None:
        if name not in jobs:
            kind = setting.removeprefix("queue_")
            raise UsageError(
                f"no job of {trace.path} is in queue {name!r}, which has a {kind}",
                f"by {by} its queues are {', '.join(sorted(jobs))}",
                f"correct --set {setting}, or --set queues ({', '.join(QUEUES)})",
            )

    def of(self, row: TraceJob) -> tuple[str, int]:
        """The queue of the row, and its rank among the queues."""
        if not self._ranks:
            return "default", 0
        name = self._of(row)
        return name, self._ranks[name]


def _by_jobs(jobs: Counter[str]) -> Quotas:
    """Each queue gets its share of the jobs: Chronus sets the quotas "according to the ratio
    between SLO and best-effort jobs" (4.3).
    """
    return Quotas(tuple((name, jobs[name] / jobs.total()) for name in sorted(jobs)))

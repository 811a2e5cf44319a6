"""Boundaries of terms at which only leases would be renewed, which a replay skips.

A master renews every lease at its boundary, because agents depend on that. In a replay only the
last renewal before an event has an effect. One turn at that boundary renews into the same term as
turns at all boundaries before it, since the boundaries form one grid.
"""

from __future__ import annotations

import math

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.lease import Terms, decision_time_s
from dlq_master.policy.admit.stage import next_move_s
from dlq_master.policy.pipeline import only_renews
from dlq_master.policy.policy import Policy
from dlq_simulator.errors import SimulateError
from dlq_simulator.world.course import Seconds

# After this many turns in which no job came or ended ...
_IN_VAIN = 20_000
# ... and with at least as many terms until any job that held GPUs would end: minutes of computing.
_MOST_AHEAD = 5_000_000


class Boundaries:
    """When a replay takes a turn without an event."""

    __slots__ = ("_ahead", "_cluster", "_in_vain", "_policy", "_term_s", "_whole_seconds")

    def __init__(
        self, cluster: Cluster, policy: Policy, terms: Terms, *, whole_seconds: bool
    ) -> None:
        self._cluster = cluster
        self._policy = policy
        self._term_s = terms.be_term_s  # that of every lease in a replay
        self._whole_seconds = whole_seconds
        self.stepped()

    def stepped(self) -> None:
        """A job has come, ended or been measured, or nodes have changed: count turns from here."""
        self._in_vain, self._ahead = 0, math.inf

    def on_clock(self, wake_s: Seconds) -> Seconds:
        """The instant, rounded up for traces in whole seconds.

        A threshold crossed within a second counts from the next one, as in the reference.
        """
        return math.ceil(wake_s) if self._whole_seconds else wake_s

    def wake(self, wake_s: Seconds, event_s: Seconds, *, step: bool) -> Seconds:
        """The next turn, at `wake_s` or later.

        That is the last boundary before the next event (at `event_s`) or move, if only renewals are
        due until then. SimulateError: more is due, at too many boundaries. `step`: the event is one
        of `events.STEPS`.
        """
        self._look_ahead(wake_s, event_s if step else math.inf)
        if not self._policy.grid:
            return wake_s
        until_s, move_s = event_s, next_move_s(self._cluster)
        if move_s < until_s:
            until_s = min(until_s, self.on_clock(move_s))
        if wake_s >= until_s:
            return wake_s
        if only_renews(self._cluster, self._policy):
            return max(wake_s, self._last_before(until_s))
        return wake_s

    def _look_ahead(self, wake_s: Seconds, step_s: Seconds) -> None:
        """Count a turn without effect. Jobs may take turns, so the nearest step of all turns
        counts.
        """
        self._in_vain += 1
        self._ahead = min(self._ahead, (step_s - wake_s) / self._term_s)
        if self._in_vain >= _IN_VAIN and _MOST_AHEAD < self._ahead < math.inf:
            raise self._too_many(wake_s)

    def _last_before(self, until_s: Seconds) -> Seconds:
        """The last decision about a boundary of the grid before this instant."""
        lead_s = self._cluster.saves.lead_s
        boundary_s = (until_s + lead_s) // self._term_s * self._term_s
        while (decided_s := self.on_clock(decision_time_s(boundary_s, lead_s))) >= until_s:
            boundary_s -= self._term_s
        return decided_s

    def _too_many(self, now_s: Seconds) -> SimulateError:
        return SimulateError(
            f"the replay of {self._policy.name!r} would take too long",
            f"no job has come or ended in the {self._in_vain} turns before {now_s:.0f} s, and "
            f"the next one ends after {self._ahead:.0f} terms of {self._term_s:g} s",
            "set a longer term_s, preempt=free, or correct the job that runs so long",
        )

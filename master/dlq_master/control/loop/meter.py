"""Counts the work of the master, for its operators. Counters begin at 0 with every start."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable

from dlq_master.control.loop.histogram import CALLS_S, Histograms
from dlq_master.control.loop.slow_turns import SlowTurns
from dlq_master.model.event import JournalEvent
from dlq_master.model.usage.accounting import Use
from dlq_master.store.tables.accounts import UseRow

# Upper ends of what turns are sorted into, in seconds; the last has none.
BUCKETS_S = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0, 5.0)


class Meter:
    """The work of a loop: its turns, how long they took with their commits, and its events by
    kind.
    """

    def __init__(self, slow_turn_s: float = 0.0) -> None:
        """`slow_turn_s`: a longer turn is kept and logged; 0: none is."""
        self.slow = SlowTurns(slow_turn_s)
        self.events: Counter[str] = Counter()
        self.turns = [0] * (len(BUCKETS_S) + 1)
        self.turns_s = 0.0
        self.longest_s = 0.0
        self.plans = Histograms(CALLS_S)  # of the policy, on the loop
        self.commits = Histograms(CALLS_S)
        self.gpu_s: defaultdict[tuple[str, str, str], float] = defaultdict(float)

    def turned(self, seconds: float) -> None:
        """One turn is over."""
        self.turns[bisect_left(BUCKETS_S, seconds)] += 1
        self.turns_s += seconds
        self.longest_s = max(self.longest_s, seconds)

    def planned(self, seconds: float) -> None:
        """The policy has decided in a turn."""
        self.plans.of().observe(seconds)

    def charged(self, rows: Iterable[UseRow]) -> None:
        """So attempts that ended have used GPUs."""
        for account, used in rows:
            for use in Use:
                gpu_s = getattr(used, use.value)
                self.gpu_s[account.pool, account.use_class.value, use.value] += gpu_s

    def committed(self, events: Iterable[JournalEvent], seconds: float = 0.0) -> None:
        """These are on disk, after a wait for it."""
        self.commits.of().observe(seconds)
        self.events.update([event.kind for event in events])  # a list: one call for all

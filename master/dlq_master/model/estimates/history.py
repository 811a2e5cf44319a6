"""The service that completed jobs have needed, from which an order may learn."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from dlq_master.model.estimates.lessons import Newest, newest_of

# Older ones are forgotten: work changes, and a distribution of so many is exact enough.
KEPT = 10_000


class History:
    """Services of completed jobs, in GPU-seconds.

    It lies in rows (`model/cluster/learned.py`). Agents have no influence on it.
    """

    __slots__ = ("_every", "learned", "newest", "refreshed")

    def __init__(self, every: int | None) -> None:
        """`learned` is replaced as a whole after so many completions, and at least a tenth of the
        known ones. So a burst of completions costs a few sorts only. It is never changed. None:
        nobody asks for it, and the services are only kept for a policy that will.
        """
        self.learned: tuple[float, ...] = ()
        self.newest: Newest[float] = Newest(maxlen=KEPT)
        self.refreshed = 0  # the count of services when `learned` was replaced
        self._every = every

    def add(self, service_gpu_s: float) -> bool:
        """A job has completed after so much service; True if there is something new to learn."""
        if service_gpu_s <= 0.0:
            return False
        self.newest.append(service_gpu_s)
        if self._every is None:
            return False
        since = self.newest.total - self.refreshed
        if since < max(self._every, len(self.newest) // 10):
            return False
        self._refresh()
        return True

    def _refresh(self) -> None:
        self.refreshed = self.newest.total
        self.learned = tuple(sorted(self.newest))

    def recollect(self, begin: int, services_gpu_s: Sequence[float], refreshed: int) -> None:
        """Know these services, of which the first has the number `begin`, as another master did
        after it had learned from the first `refreshed`.
        """
        self.newest = newest_of(begin, services_gpu_s, KEPT)
        self.refreshed = min(refreshed, self.newest.total)
        if self._every is not None:
            upto = self.refreshed - begin
            self.learned = tuple(sorted(services_gpu_s[max(0, upto - KEPT) : max(0, upto)]))

    def under(self, every: int | None) -> History:
        """The same services for another policy, which learns from them at once."""
        known = History(every)
        known.newest, known.refreshed = self.newest, self.refreshed
        if every is not None and self.newest:
            known._refresh()
        return known

    def quantile(self, share: float) -> float:
        """The smallest learned service that `share` of the jobs stay within; 0: none is."""
        if not self.learned:
            return 0.0
        return self.learned[max(0, ceil(share * len(self.learned) - 1e-9) - 1)]

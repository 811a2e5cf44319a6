"""The service that completed jobs have needed, from which an order may learn."""

from __future__ import annotations

from collections import deque
from math import ceil

# Older ones are forgotten: work changes, and a distribution of so many is exact enough.
KEPT = 10_000


class History:
    """Services of completed jobs, in GPU-seconds.

    It is part of the working state and stored nowhere. A restarted master learns it anew from the
    ended jobs that it loads (`[retention] ended_kept`). Agents have no influence on it.
    """

    __slots__ = ("_every", "_newest", "_since", "learned")

    def __init__(self, every: int) -> None:
        """`learned` is replaced as a whole after so many completions, and at least a tenth of the
        known ones. So a master that loads many learns a few times only. It is never changed.
        """
        self.learned: tuple[float, ...] = ()
        self._every = every
        self._newest: deque[float] = deque(maxlen=KEPT)
        self._since = 0

    def add(self, service_gpu_s: float) -> bool:
        """A job has completed after so much service; True if there is something new to learn."""
        if service_gpu_s <= 0.0:
            return False
        self._newest.append(service_gpu_s)
        self._since += 1
        if self._since < max(self._every, len(self._newest) // 10):
            return False
        self._since = 0
        self.learned = tuple(sorted(self._newest))
        return True

    def quantile(self, share: float) -> float:
        """The smallest learned service that `share` of the jobs stay within; 0: none is."""
        if not self.learned:
            return 0.0
        return self.learned[max(0, ceil(share * len(self.learned) - 1e-9) - 1)]

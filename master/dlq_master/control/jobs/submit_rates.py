"""How fast one user may submit: a bucket of tokens for each, filled at a steady rate.

A submission takes one token for each job, or one for each 64 KiB of its spec, if these are more.
Specs are kept for good: scripts of one user could fill the master's disk. A repeat of one that was
accepted takes none. Buckets live in memory: a restart fills them. Agents and silence do not matter
here.
"""

import math
from typing import Final, NamedTuple

# Beyond so many, buckets that are full again are forgotten: they say nothing.
MOST_BUCKETS: Final = 1_000


# Of a stored spec. A usual one, with the environment of a shell, is smaller.
TOKEN_BYTES: Final = 64 * 1024


def tokens_of(jobs: int, spec: bytes) -> int:
    """The tokens of so many jobs with one spec."""
    return max(jobs, math.ceil(len(spec) / TOKEN_BYTES))


class _Bucket(NamedTuple):
    tokens: float
    since_s: float


class SubmitRates:
    """The buckets of all users, by the master's steady clock."""

    def __init__(self, rate_per_s: float, burst: int) -> None:
        self._rate_per_s = rate_per_s
        self._burst = float(burst)
        self._buckets: dict[str, _Bucket] = {}

    def take(self, user: str, asked: int, now_s: float) -> float:
        """Take so many tokens and return 0.0; or take none, and return when to come again (s).

        More at once than a bucket holds need it full.
        """
        wanted = min(float(asked), self._burst)
        tokens = self._tokens(user, now_s)
        if tokens < wanted:
            return (wanted - tokens) / self._rate_per_s
        if user not in self._buckets and len(self._buckets) >= MOST_BUCKETS:
            self._forget_full(now_s)
        self._buckets[user] = _Bucket(tokens - wanted, now_s)
        return 0.0

    def left(self, user: str, now_s: float) -> int:
        """How many jobs the user may submit at once now."""
        return int(self._tokens(user, now_s))

    def _tokens(self, user: str, now_s: float) -> float:
        bucket = self._buckets.get(user)
        if bucket is None:
            return self._burst
        filled = bucket.tokens + self._rate_per_s * max(0.0, now_s - bucket.since_s)
        return min(self._burst, filled)

    def _forget_full(self, now_s: float) -> None:
        for user in list(self._buckets):
            if self._tokens(user, now_s) >= self._burst:
                del self._buckets[user]

    def __len__(self) -> int:
        return len(self._buckets)

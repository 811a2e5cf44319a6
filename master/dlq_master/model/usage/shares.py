"""The recent usage of accounts, and the place of each against its share.

Usage is GPUs x seconds of RUNNING, whatever came of it, and counts half after each half-life. An
attempt is entered when it ends; the caller adds running attempts.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp2, log

_LN2 = log(2.0)
_LEAST_GPU_S = 1.0  # below it an account is forgotten


class ShareLedger:
    """GPU-seconds of each account (model.accounts), older ones counting less."""

    __slots__ = ("_accounts", "changed", "half_life_s")

    def __init__(
        self, half_life_s: float, accounts: Mapping[str, tuple[float, float]] = {}
    ) -> None:
        """`accounts`: account -> usage, and the instant at which it was so."""
        self.half_life_s = half_life_s
        self._accounts = dict(accounts)
        self.changed = False  # since whoever stores it has last looked

    def charge(self, account: str, gpus: float, begin_s: float, end_s: float) -> None:
        """So many GPUs were used from `begin_s` to `end_s`."""
        used, at_s = self._accounts.get(account, (0.0, end_s))
        later_s = max(at_s, end_s)
        used *= self._left(later_s - at_s)
        used += self.used(gpus, begin_s, end_s) * self._left(later_s - end_s)
        self._accounts[account] = used, later_s
        self.changed = True

    def used(self, gpus: float, begin_s: float, end_s: float) -> float:
        """The weight at `end_s` of so many GPUs from `begin_s` on."""
        span_s = max(0.0, end_s - begin_s)
        return gpus * self.half_life_s / _LN2 * (1.0 - self._left(span_s))

    def at(self, now_s: float) -> dict[str, float]:
        """The present weight of each account; accounts with next to none are forgotten."""
        found = {}
        for account, (used, at_s) in list(self._accounts.items()):
            now = used * self._left(max(0.0, now_s - at_s))
            if now < _LEAST_GPU_S:
                del self._accounts[account]
            else:
                found[account] = now
        return found

    @property
    def accounts(self) -> Mapping[str, tuple[float, float]]:
        """As they are to be stored."""
        return self._accounts

    def _left(self, span_s: float) -> float:
        return exp2(-span_s / self.half_life_s)


class Shares:
    """The ledger, and how it stood when it was last weighed.

    `standing`: team or account -> a level, lower is served first; 0 for an account that is not
    named. `term`: of the best-effort grid, in which that was so.
    """

    __slots__ = ("ledger", "standing", "term")

    def __init__(self, half_life_s: float) -> None:
        self.ledger = ShareLedger(half_life_s)
        self.standing: Mapping[str, int] = {}
        self.term = -1

"""The use of grants, read from the accounting and told to the loop.

The accounting counts the GPU time of attempts by day, user and team, live ones included
(`model/usage/accounting.py`). The team of a grant has guests only, so its use is the grant's. It is
read after a start and then every half minute. So guests exceed a grant's GPU-hours by half a minute
at most. If the accounting cannot be read, grants stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import floor

from dlq_common.errors import DlqError
from dlq_master.control.people.grants import period_of
from dlq_master.control.read_model.ports import Control
from dlq_master.control.read_model.published import Published
from dlq_master.control.stimuli import GrantsUsed
from dlq_master.model.usage.accounting import DAY_S
from dlq_master.store.tables.tenants import OPEN_GRANTS


async def used_gpu_s(
    read: Published, team: str, first_day: int, now_s: float, last_day: int | None = None
) -> Mapping[str, float]:
    """GPU-seconds of a team since a day of UTC by user, including live attempts."""
    last = floor(now_s / DAY_S) if last_day is None else min(last_day, floor(now_s / DAY_S))
    books = await read.books(first_day, last, now_s)
    found: dict[str, float] = {}
    for account, spent in books.uses.items():
        if account.team == team:
            found[account.user] = found.get(account.user, 0.0) + spent.held
    return found


async def look(control: Control, now_s: Callable[[], float], lost: Callable[[], object]) -> None:
    """Tell the loop what each grant's guests have used in its present period. `lost` is called when
    a grant has ended.
    """
    read, periods = control.published, []
    grants = [one for one in read.grants.values() if one.state in OPEN_GRANTS]
    for grant in grants:
        if grant.limits.gpu_hours is not None:
            try:
                used = await used_gpu_s(read, grant.team, period_of(grant, now_s())[0], now_s())
            except (DlqError, OSError):
                continue
            periods.append((grant.serial, sum(used.values())))
    if grants:
        changed = await control.ask(GrantsUsed(periods=tuple(periods)))
        if changed:
            lost()

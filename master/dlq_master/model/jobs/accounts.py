"""To whom GPUs are counted: a team, and in it one of its members.

An account is one text, `TEAM/USER`. A user without a team is a team of one, of the same name.
Quotas, limits and shares are told by such texts too: `TEAM` for all of a team, `TEAM/USER` for one
member, with `*` for everybody who is not named.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TypeVar

Value = TypeVar("Value")

OTHERS = "*"  # every team, or member of a team, without a word of its own
_IN = "/"


@lru_cache(maxsize=4096)
def account_of(team: str, user: str) -> str:
    """Of a job of this user that is counted to this team; "" = to the user alone."""
    return f"{team or user}{_IN}{user}"


def team_of(account: str) -> str:
    return account.partition(_IN)[0]


def of_team(told: Mapping[str, Value] | None, team: str) -> Value | None:
    """The rules of a team; None: nothing."""
    if told is None:
        return None
    return told.get(team, told.get(OTHERS))


def of_member(told: Mapping[str, Value] | None, account: str) -> Value | None:
    """The rules of one member of a team; None: nothing."""
    if told is None:
        return None
    return told.get(account, told.get(f"{team_of(account)}{_IN}{OTHERS}"))


def tells_of_members(told: Mapping[str, Value] | None) -> bool:
    """Whether anything is told of single members."""
    return told is not None and any(_IN in name for name in told)

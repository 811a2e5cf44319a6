"""The rules that make a user of the cluster out of an issuer's claims, and bound the user's role.

One claim names the user. A pattern may cut the name out, and the whole claim must fit it. Groups
say which roles may sign in. The role itself, teams and all else of a user are the master's. It
hears of some groups, and decides what they give.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from dlq_common.errors import PermissionDenied
from dlq_common.text.names import check_user_name

ROLES = ("user", "operator", "admin")


class GroupRules(NamedTuple):
    """For each role the groups whose members may sign in with it."""

    user: Collection[str] = ()  # none: everybody whom the issuer knows
    operator: Collection[str] = ()  # none: no operator signs in this way
    admin: Collection[str] = ()  # likewise

    def allow(self, role: str, groups: Collection[str]) -> bool:
        """Whether a member of these groups may sign in with a role; a group of a higher role will
        do.
        """
        if role not in ROLES:
            return False
        if role == "user" and not self.user:
            return True
        enough = {group for name in ROLES[ROLES.index(role) :] for group in getattr(self, name)}
        return not enough.isdisjoint(groups)


class ClaimRules(NamedTuple):
    """How claims are read."""

    user_claim: str
    user_pattern: str  # "": the claim is the name; else group 1 of the pattern is
    groups_claim: str
    groups: GroupRules
    told_groups: Collection[str] = ()  # those that the master hears of

    def told(self, groups: Collection[str]) -> tuple[str, ...]:
        """Those of the groups that the master hears of, in one order."""
        return tuple(sorted({*groups} & {*self.told_groups}))

    def user(self, claims: Mapping[str, Any]) -> str:
        """The name of the user in the cluster. Raises PermissionDenied, in words."""
        told = claims.get(self.user_claim)
        if not isinstance(told, str) or not told:
            raise PermissionDenied(
                f"the issuer does not tell {self.user_claim}",
                hint="openid.user_claim and openid.scopes in web.toml",
            )
        if self.user_claim == "email" and claims.get("email_verified") is not True:
            raise PermissionDenied("the issuer has not verified this address of mail")
        name = self._cut(told)
        try:
            return check_user_name(name)
        except ValueError:
            raise PermissionDenied(
                f"{self.user_claim} is no name of a user of the cluster",
                hint="openid.user_pattern in web.toml",
            ) from None

    def group_names(self, claims: Mapping[str, Any]) -> list[str]:
        """The groups that the issuer tells; none where the claim is no list of texts."""
        told = claims.get(self.groups_claim)
        return [one for one in told if isinstance(one, str)] if isinstance(told, list) else []

    def _cut(self, told: str) -> str:
        if not self.user_pattern:
            return told
        match = re.fullmatch(self.user_pattern, told)
        if match is None or match[1] is None:
            raise PermissionDenied(
                f"{self.user_claim} does not fit openid.user_pattern",
                hint="this account of the issuer is of nobody in the cluster",
            )
        return match[1]

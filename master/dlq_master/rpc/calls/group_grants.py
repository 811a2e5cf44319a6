"""Roles and teams that groups of an issuer give, for as long as a session at a web server lasts.

The web server says in which groups its user is. The master's own configuration has the roles and
teams of groups, so the server can give itself nothing. A role goes as far as the server may act for
users at all. Nothing is stored: after a restart the new configuration counts, and a session whose
role it no longer gives is over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from dlq_master.control.people.people import ROLE_ORDER

Named = Mapping[str, str]
NOTHING: Named = MappingProxyType({})


class GroupGrants(NamedTuple):
    """For each group a role, a team, or both."""

    roles: Named = NOTHING
    teams: Named = NOTHING

    def known(self, groups: Iterable[str]) -> tuple[str, ...]:
        """Those of the groups that give something, in their order."""
        return tuple(one for one in groups if one in self.roles or one in self.teams)

    def role(self, own: str, groups: Iterable[str]) -> str:
        """The highest role of the user's own and of those that the groups give. A role that stands
        apart, such as a service's, stays.
        """
        if own not in ROLE_ORDER:
            return own
        given = (self.roles[one] for one in groups if one in self.roles)
        return max((own, *given), key=ROLE_ORDER.index)

    def teams_of(self, groups: Iterable[str]) -> tuple[tuple[str, str], ...]:
        """The teams that the groups give, each with its group."""
        found = {self.teams[one]: one for one in groups if one in self.teams}
        return tuple(sorted(found.items()))

"""The groups of roles, and a method of the wire with the roles that may call it.

People's roles are ordered by rights: guest < user < operator < admin. Nodes, the inference service,
the notifier and the web server stand apart. Handlers, not roles, decide whose job a caller may see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from dlq_common.identity.pki import Role
from dlq_master.control.people.people import ROLE_ORDER

USERS = frozenset({Role.USER, Role.OPERATOR, Role.ADMIN})
VISITORS = USERS | {Role.GUEST}  # also guests of other organisations: for jobs of their own
OPERATORS = frozenset({Role.OPERATOR, Role.ADMIN})
ADMINS = frozenset({Role.ADMIN})
NODES = frozenset({Role.NODE})
LENDERS = OPERATORS | {Role.INFERENCE}
LOOKERS = USERS | {Role.INFERENCE}  # may look at nodes and queues
GREETED = LOOKERS | NODES | {Role.GUEST}  # may ask who they are here
MEMBERS = LOOKERS | NODES
NOTIFIERS = frozenset({Role.NOTIFIER})
HEARERS = VISITORS | NOTIFIERS  # of events
WEB = frozenset({Role.WEB})
NOBODY: frozenset[Role] = frozenset()


class RpcMethod(NamedTuple):
    """A method: the roles that may call it, its handler, and whether it changes something.

    Every call of a change is in the audit. `in_person`: only with the caller's own certificate, not
    through a service that acts for users. `by_service`: only through such a service. The handler
    gets the call and its request, or all requests of a client that streams. It returns the
    response; a generator yields responses.
    """

    roles: frozenset[Role]
    handler: Callable[..., Any]
    changes: bool = False
    in_person: bool = False
    by_service: bool = False


Named = Mapping[str, str]
NOTHING: Named = MappingProxyType({})


class GroupGrants(NamedTuple):
    """The role and the teams that groups of an issuer give, for the time of a web session.

    The web server names the user's groups. The master's own configuration says which roles and
    teams they give, so the server can give itself nothing. A role counts only as far as the server
    may act for users at all. Nothing is stored. After a restart the new configuration counts, and
    sessions with a role that it does not give end.
    """

    roles: Named = NOTHING
    teams: Named = NOTHING

    def known(self, groups: Iterable[str]) -> tuple[str, ...]:
        """The groups among these that give something, in their order."""
        return tuple(one for one in groups if one in self.roles or one in self.teams)

    def role(self, own: str, groups: Iterable[str]) -> str:
        """The highest of the user's own role and those that the groups give. Roles that stand apart
        stay.
        """
        if own not in ROLE_ORDER:
            return own
        given = (self.roles[one] for one in groups if one in self.roles)
        return max((own, *given), key=ROLE_ORDER.index)

    def teams_of(self, groups: Iterable[str]) -> tuple[tuple[str, str], ...]:
        """The teams that the groups give, each with its group."""
        found = {self.teams[one]: one for one in groups if one in self.teams}
        return tuple(sorted(found.items()))

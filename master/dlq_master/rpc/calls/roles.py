"""The groups of roles, and a method of the wire with the roles that may call it.

Among people each role may do what the one before it may: guest < user < operator < admin. Nodes,
the inference service, the notifier and the web server stand apart. Whose job it is, is not decided
here but by the handler.
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
    """The roles that may call a method, its handler, and whether it changes something (then every
    call is in the audit). `in_person`: with one's own certificate alone, not through a service that
    acts for its users. `by_service`: through such a service alone.

    The handler is given the call, and its request or, of a client that streams, all of them. It
    returns the response; a generator yields responses.
    """

    roles: frozenset[Role]
    handler: Callable[..., Any]
    changes: bool = False
    in_person: bool = False
    by_service: bool = False


Named = Mapping[str, str]
NOTHING: Named = MappingProxyType({})


class GroupGrants(NamedTuple):
    """A role, a team, or both for each group of an issuer, while a session at a web server lasts.

    The web server says in which groups its user is. The master's own configuration has the roles
    and teams of groups, so the server can give itself nothing. A role goes as far as the server may
    act for users at all. Nothing is stored: after a restart the new configuration counts, and a
    session whose role it no longer gives is over.
    """

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

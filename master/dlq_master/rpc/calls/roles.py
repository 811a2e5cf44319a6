"""The groups of roles, and a method of the wire with the roles that may call it.

Among people each role may do what the one before it may: user < operator < admin. Nodes, the
inference service, the notifier and the web server stand apart. Whose job it is, is not decided
here but by the handler.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from dlq_common.identity.pki import Role

USERS = frozenset({Role.USER, Role.OPERATOR, Role.ADMIN})
OPERATORS = frozenset({Role.OPERATOR, Role.ADMIN})
ADMINS = frozenset({Role.ADMIN})
NODES = frozenset({Role.NODE})
LENDERS = OPERATORS | {Role.INFERENCE}
LOOKERS = USERS | {Role.INFERENCE}  # may look at nodes and queues
MEMBERS = LOOKERS | NODES
NOTIFIERS = frozenset({Role.NOTIFIER})
HEARERS = USERS | NOTIFIERS  # of events
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

"""The caller of a request, and the forms that a stimulus has."""

import math
from dataclasses import dataclass
from typing import Generic, TypeVar

from dlq_master.model.ids import NodeId
from dlq_master.model.jobs.person import Owned, belongs

A_co = TypeVar("A_co", covariant=True)  # the answer


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller, always from the certificate, never from a field of a request.

    `person` tells apart who has had the same name; "" = nobody else had it. `since_s`: since when
    they have it. `given_teams`: teams that groups of an issuer give to this caller, each with its
    group.
    """

    name: str
    role: str
    person: str = ""
    since_s: float = -math.inf
    given_teams: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        # Digests of requests are made of it: they stay what they were.
        return f"Caller(name={self.name!r}, role={self.role!r})"

    @property
    def key(self) -> str:
        """Under which the answers to their requests are kept."""
        return self.person or self.name

    @property
    def actor(self) -> str:
        """The word for the journal, such as "user:alice" or "node:gpu01"."""
        return f"node:{self.name}" if self.role == "node" else f"user:{self.name}"

    @property
    def sees_all(self) -> bool:
        """Operators and admins see and steer everybody's jobs."""
        return self.role in ("operator", "admin")

    @property
    def hears_all(self) -> bool:
        """So does the notifier, of events alone: the table of methods bars it from all else."""
        return self.sees_all or self.role == "notifier"

    @property
    def is_guest(self) -> bool:
        """Whether it is a user of another organisation, under a grant."""
        return self.role == "guest"

    def is_given(self, team: str) -> bool:
        """Whether a group gives this team."""
        return any(team == name for name, _group in self.given_teams)

    def owns(self, owned: Owned) -> bool:
        """Whether it is the caller's own: the person's, not the name's."""
        return belongs(owned, self.name, self.person, self.since_s)

    def may_see(self, owned: Owned) -> bool:
        """Whether it is any business of the caller's."""
        return self.sees_all or self.owns(owned)


class Stimulus:
    """Everything that can enter the loop's inbox."""

    __slots__ = ()


class Answered(Stimulus, Generic[A_co]):
    """A stimulus whose sender waits for its answer, after the commit."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerRequest(Answered[A_co]):
    """A change that a caller asks for; a repeat with its `request_id` gets the first answer."""

    caller: Caller
    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRequest(CallerRequest[A_co]):
    """The same, about one node."""

    node_id: NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionReport(Stimulus):
    """A message of an agent on one of its sessions. Not awaited, except where it is `Answered`."""

    node_id: NodeId
    session_id: int

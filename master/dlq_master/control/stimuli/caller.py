"""Who asks."""

import math
from dataclasses import dataclass

from dlq_master.model.jobs.person import Owned, belongs


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller, always from the certificate, never from a field of a request.

    `person` tells apart who has had the same name; "" = nobody else had it. `since_s`: since when
    they have it.
    """

    name: str
    role: str
    person: str = ""
    since_s: float = -math.inf

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

    def owns(self, owned: Owned) -> bool:
        """Whether it is the caller's own: the person's, not the name's."""
        return belongs(owned, self.name, self.person, self.since_s)

    def may_see(self, owned: Owned) -> bool:
        """Whether it is any business of the caller's."""
        return self.sees_all or self.owns(owned)

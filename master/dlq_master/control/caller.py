"""Who asks."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: always from the certificate, never from a field of a request."""

    name: str
    role: str

    @property
    def actor(self) -> str:
        """The word for the journal, such as "user:alice" or "node:gpu01"."""
        return f"node:{self.name}" if self.role == "node" else f"user:{self.name}"

    @property
    def sees_all(self) -> bool:
        """Operators and admins see and steer everybody's jobs."""
        return self.role in ("operator", "admin")

"""The port to the instant of the last contact; the real one is the shims' contact file."""

from typing import Protocol


class Contact(Protocol):
    """Remembers the last contact beyond the agent's life (shim/contact.py: ContactFile)."""

    def boottime_s(self) -> float | None:
        """Boottime of the last contact in this boot; None when there was none."""
        ...

    def renew(self, boottime_s: float) -> None:
        """The heartbeat sent at that instant was answered. Never goes back."""
        ...


class FakeContact:
    """A contact in memory; for tests and deterministic runs."""

    def __init__(self) -> None:
        self._last_s: float | None = None

    def boottime_s(self) -> float | None:
        """See the port."""
        return self._last_s

    def renew(self, boottime_s: float) -> None:
        """See the port."""
        self._last_s = boottime_s if self._last_s is None else max(self._last_s, boottime_s)

"""A provider without machines, for tests that ask for it by its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dlq_master.control.stimuli.machines import Listed
from dlq_master.providers.port import MachineWish

FAKE = "fake"  # the name of such a provider in a pool


@dataclass
class FakeProvider:
    """See the port. `before`: called before each call with its verb; if it raises, the call raises
    the same and does nothing; `after` likewise, when it is done.
    """

    before: Callable[[str], object] = lambda _verb: None
    after: Callable[[str], object] = lambda _verb: None
    there: dict[str, str] = field(default_factory=dict)
    started: list[str] = field(default_factory=list)  # machines that would be paid for, in order
    calls: list[str] = field(default_factory=list)

    def start(self, wish: MachineWish) -> str:
        """See the port."""
        self._say("start", wish.request_id)
        if wish.request_id not in self.there:
            self.started.append(wish.request_id)
            self.there[wish.request_id] = f"i-{len(self.started)}"
        self.after("start")
        return self.there[wish.request_id]

    def stop(self, request_id: str, instance_id: str) -> bool:
        """See the port."""
        self._say("stop", request_id)
        self.there.pop(request_id, None)
        self.after("stop")
        return True

    def list(self) -> tuple[Listed, ...]:
        """See the port."""
        self._say("list", "")
        self.after("list")
        return tuple(Listed(*item) for item in sorted(self.there.items()))

    def _say(self, verb: str, request_id: str) -> None:
        self.calls.append(f"{verb} {request_id}".strip())
        self.before(verb)

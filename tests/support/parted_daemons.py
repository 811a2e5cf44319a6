"""Daemons whose agents each dial the master over a line of their own, which a test may cut."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from support.harness import BRIEF_SILENCE_S, Daemons
from support.held_lines import BOTH, HeldLine


class PartedDaemons(Daemons):
    """Each agent dials the master over a line of its own."""

    def __init__(
        self, root: Path, agents: Sequence[str], *, hold_s: int = 120, lease: str = ""
    ) -> None:
        super().__init__(root, tuple(agents), hold_s=hold_s, silence_s=BRIEF_SILENCE_S, lease=lease)
        self.lines = {name: HeldLine(self.api) for name in agents}

    @contextmanager
    def up(self) -> Iterator["PartedDaemons"]:
        with ExitStack() as lines:
            for line in self.lines.values():
                lines.enter_context(line.running())
            with super().up():
                yield self

    def cut(self, names: Sequence[str]) -> None:
        """Nothing passes in either direction, until `heal`."""
        for name in names:
            self.lines[name].hold(BOTH)

    def heal(self, names: Sequence[str]) -> None:
        """Everything passes."""
        for name in names:
            self.lines[name].heal()

    def _make_agent(self, name: str) -> None:
        self.dialled = self.lines[name].address
        super()._make_agent(name)

"""A master that dies at a chosen passage of a failpoint, inside this process, and how many passages
there are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

from dlq_master.control.loop.failpoints import Failpoints
from dlq_master.model.event import JournalEvent

T = TypeVar("T")


class Crash(BaseException):
    """The process is gone."""


class Counting(Failpoints):
    """Raises instead of killing the process, and counts what was passed."""

    def __init__(self, setting: str = "") -> None:
        super().__init__(setting, self._crash)
        self.passages: Counter[str] = Counter()

    def _crash(self) -> None:
        raise Crash

    def passed(self, name: str, events: Sequence[JournalEvent] = ()) -> None:
        self.passages[name] += 1
        super().passed(name, events)


class MortalStory(ABC):
    """What happens to a cluster whose master may die; whoever got no answer asks again."""

    def __init__(self, setting: str = "") -> None:
        self.counting = Counting(setting)
        self.crashes = 0
        self.before: Counter[str] = Counter()  # what is passed before that which is tested

    @abstractmethod
    def run(self) -> None:
        """All of it."""

    @abstractmethod
    def told(self) -> str:
        """What has happened, for who has to find out why something did not."""

    @abstractmethod
    def _live(self) -> None:
        """A moment passes, and everybody does what they were told."""

    @abstractmethod
    def _again(self) -> None:
        """The next master starts, and the agents say hello to it."""

    def _do(self, act: Callable[[], T]) -> T:
        try:
            return act()
        except Crash:
            self.crashes += 1
            self._again()
            return self._do(act)

    def _until(self, true: Callable[[], bool]) -> None:
        for _ in range(40):
            if true():
                return
            self._do(self._live)
        raise AssertionError(self.told())


S = TypeVar("S", bound=MortalStory)


def dies_at_every_passage(
    place: str, story: Callable[[str], S], judge: Callable[[S], None]
) -> None:
    """The story as it is, and once for every passage of `place` with a master that dies there, each
    of them judged.
    """
    calm = story("")
    calm.run()
    judge(calm)
    first, last = calm.before[place] + 1, calm.counting.passages[place]
    for number in range(first, last + 1):
        mortal = story(f"{place}:{number}")
        mortal.run()
        assert mortal.crashes == 1, f"{place}:{number}"
        judge(mortal)
    assert last >= first

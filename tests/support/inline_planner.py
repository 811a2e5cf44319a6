"""A planner that answers when a test says so, in the test's own process, or badly, or never."""

from __future__ import annotations

from dlq_master.planner.plans import Answer, read_answer, write_answer
from dlq_master.planner.process import Facts, Write
from dlq_master.planner.told import StateTold
from dlq_master.planner.worker import PlannerDesk


class InlinePlanner:
    """`questions`: stages that were asked for. Its knobs: `up`, whether it would answer, and
    `rest_s`, how long it says that it rests; `outdated`: what it says if it is of another version,
    and answers nothing."""

    def __init__(self) -> None:
        self.up = True
        self.rest_s = 0.0
        self.outdated = ""
        self.questions: list[str] = []
        self._asked: list[bytes] | None = None
        self._number = 0
        self._told, self._desk = StateTold(), PlannerDesk()
        self._stage = ""

    @property
    def ready(self) -> bool:
        return self.up and not self.outdated and self._asked is None

    def ask(self, number: int, stage: str, write: Write) -> None:
        assert self.ready, "one question at a time"
        self.questions.append(stage)
        self._number, self._stage = number, stage
        self._asked = list(write(self._told))

    def facts(self) -> Facts:
        state = "outdated" if self.outdated else "idle"
        return Facts(state, None, 0, 0, 0, 0.0, 0.0, self.outdated, self.rest_s)

    @property
    def asked(self) -> bool:
        """A question waits for its answer."""
        return self._asked is not None

    def answer(self) -> Answer:
        """The answer to the question that waits, as it comes over the pipe."""
        asked, self._asked = self._asked, None
        assert asked is not None, "nothing was asked"
        return read_answer(write_answer(self._desk.answer(self._number, self._stage, asked)))

    def fail(self, why: str = "it ended") -> Answer:
        """What is told when it has died instead."""
        self._asked = None
        self._told, self._desk = StateTold(), PlannerDesk()  # another process
        return Answer(self._number, fault=why)

"""Programs that choose machines are solved by a process beside the master, which goes on.

A program may take seconds. So a look of the rent stage that needs one rents nothing, and the
process is asked after the commit. The first look after its answer weighs these machines as any
others: prices, room and jobs are those of that look. Without a process that answers, the default
method decides at once (`gpuaas-marginal`).

Nothing of it is stored: a master that starts again asks anew. Agents have no part in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from dlq_master.planner.plans import Answer
from dlq_master.planner.process import Write
from dlq_master.planner.schedules import read_schedule, write_problem
from dlq_master.policy.policy import Policy
from dlq_master.policy.priced.names import PROGRAMS
from dlq_master.policy.rent.stage import RentMethod

if TYPE_CHECKING:
    from dlq_master.model.late import np
    from dlq_master.policy.priced.situation import Schedule, Situation


class SolverProcess(Protocol):
    """A planning process of its own (planner.process). `ready`: it would answer."""

    @property
    def ready(self) -> bool: ...
    def ask(self, number: int, stage: str, write: Write) -> None: ...


@dataclass(slots=True)
class ProgramSolving:
    """The open question. `process` None: programs are solved on the spot.

    `wanted`: to be asked when this turn is on disk. `answer`: for the next look. `current`: of the
    present look.
    """

    process: SolverProcess | None = None
    number: int = 0
    asked: bool = False
    wanted: bytes | None = None
    answer: Answer | None = None
    current: Answer | None = None
    _method: str = ""
    _settings: Mapping[str, str] = field(default_factory=dict)
    _variant: tuple[Policy, Policy] | None = field(default=None, repr=False)

    def begin_look(self, policy: Policy, method: str, settings: Mapping[str, str]) -> Policy:
        """The policy by which this look decides."""
        if self.process is None or method not in PROGRAMS or policy.renting is None:
            return policy
        self._method, self._settings = method, settings
        self.current, self.answer = self.answer, None
        if self._variant is None or self._variant[0] is not policy:
            renting = RentMethod(policy.renting.types, self.schedule)
            self._variant = policy, replace(policy, renting=renting)
        return self._variant[1]

    def schedule(self, situation: Situation, draw: np.random.Generator) -> Schedule:
        """A solver for the rent stage: the answer, if it is there."""
        from dlq_master.policy.priced.marginal import marginal
        from dlq_master.policy.priced.situation import EMPTY

        assert self.process is not None  # `begin_look` says so
        if self.current is not None and not self.current.fault:
            plans = self.current.plans
            return read_schedule(plans[0], situation.catalogue) if plans else EMPTY
        if self.current is not None or not (self.asked or self.process.ready):
            return marginal(situation, draw)
        if not self.asked and self.wanted is None:
            self.wanted = write_problem(self._method, self._settings, situation)
        return EMPTY

    def ask(self) -> None:
        """After the commit: send the question that this turn has left, if any."""
        from dlq_master.planner.schedules import RENT

        problem, self.wanted = self.wanted, None
        if problem is None or self.process is None or not self.process.ready:
            return
        self.number += 1
        self.asked = True
        self.process.ask(self.number, RENT, lambda _: iter([problem]))

    def heard(self, answer: Answer) -> None:
        """From the process, between two turns or within one."""
        if self.asked and answer.number == self.number:
            self.asked, self.answer = False, answer

"""Lists of steps in memory, in the place of the master's tables."""

from collections.abc import Sequence

from dlq_master.model.attempts.attempt import TakenSteps
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.rpc.agents.step_keeper import StepStore


class KeptSteps:
    """The knob `room`: False refuses what is put, as a full disk does."""

    def __init__(self) -> None:
        self.room = True
        self.lists: dict[AttemptKey, TakenSteps] = {}
        self.puts = 0

    @property
    def store(self) -> StepStore:
        return StepStore(self._put, self._read)

    async def _put(self, taken: Sequence[TakenSteps]) -> bool:
        self.puts += 1
        if self.room:
            self.lists |= {one.key: one for one in taken}
        return self.room

    async def _read(self, job_ids: Sequence[JobId], *, every: bool) -> Sequence[TakenSteps]:
        found: list[TakenSteps] = []
        for job_id in job_ids:
            own = [self.lists[key] for key in sorted(self.lists) if key.job_id == job_id]
            found += own if every else own[-1:]
        return found

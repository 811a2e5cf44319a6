"""Lists of steps on their way to the disk: gathered for a moment, and written beside the turns.

The loop never sees them. Their lists are the longest that agents send, and nothing is planned by
them. All that come within a moment are one transaction. An agent hears that a list is on disk after
it is. A master that dies before has said nothing, so the agent tells it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from dlq_master.model.attempts.attempt import TakenSteps
from dlq_master.model.ids import AttemptKey, JobId

GATHERED_S: Final = 0.1


class ReadSteps(Protocol):
    """Reads the lists of these jobs: of every attempt, or of the last one that has any."""

    def __call__(
        self, job_ids: Sequence[JobId], *, every: bool
    ) -> Awaitable[Sequence[TakenSteps]]: ...


class StepStore(NamedTuple):
    """Where lists of steps are kept. `put` returns when they are on disk, False without room."""

    put: Callable[[Sequence[TakenSteps]], Awaitable[bool]]
    read: ReadSteps


@dataclass(slots=True)
class _Gathered:
    lists: dict[AttemptKey, TakenSteps] = field(default_factory=dict)
    written: asyncio.Future[bool] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class StepKeeper:
    """Writes lists of steps, those of all nodes together. Lives in the event loop's thread."""

    def __init__(
        self, store: StepStore, pause: Callable[[float], Awaitable[object]] = asyncio.sleep
    ) -> None:
        self._store = store
        self.read = store.read
        self._pause = pause
        self._next: _Gathered | None = None
        self._writing: asyncio.Task[None] | None = None

    async def keep(self, taken: Iterable[TakenSteps]) -> bool:
        """Return when they, or newer ones of the same attempts, are on disk. False: there is no
        room.
        """
        gathered = self._next = self._next or _Gathered()
        gathered.lists |= {one.key: one for one in taken}
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write())
        return await asyncio.shield(gathered.written)

    async def _write(self) -> None:
        try:
            while self._next is not None:
                await self._pause(GATHERED_S)
                gathered, self._next = self._next, None
                try:
                    gathered.written.set_result(
                        await self._store.put(list(gathered.lists.values()))
                    )
                except Exception as error:  # noqa: BLE001 - raised again by all that wait
                    gathered.written.set_exception(error)
        finally:
            self._writing = None

"""Lists of steps on their way to the disk: collected for a moment, written beside the turns.

The loop never sees them: no report of agents is longer, and no decision uses them. All lists of a
moment are one transaction. An agent hears that its list is on disk only afterwards. After a crash
of the master it sends the list again.
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
    """Stores lists of steps. `put` returns when they are on disk; False: there is no room."""

    put: Callable[[Sequence[TakenSteps]], Awaitable[bool]]
    read: ReadSteps


@dataclass(slots=True)
class _Gathered:
    lists: dict[AttemptKey, TakenSteps] = field(default_factory=dict)
    written: asyncio.Future[bool] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class StepKeeper:
    """Writes lists of steps of all nodes together. Used in the event loop's thread only."""

    def __init__(
        self, store: StepStore, pause: Callable[[float], Awaitable[object]] = asyncio.sleep
    ) -> None:
        self._store = store
        self.read = store.read
        self._pause = pause
        self._next: _Gathered | None = None
        self._writing: asyncio.Task[None] | None = None

    async def keep(self, taken: Iterable[TakenSteps]) -> bool:
        """Wait until these lists, or newer ones of the same attempts, are on disk.
        False: no room.
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

"""The claims of attempts on GPUs, from one value of the attempt to the next."""

from __future__ import annotations

from dlq_master.model.attempts.attempt import Attempt, AttemptState
from dlq_master.model.ids import AttemptKey
from dlq_master.model.nodes.capacity import Capacity
from dlq_master.model.resources import Allocation

# Looking an enum's member up costs more than comparing it, and these are on the hot path.
_PAUSING = AttemptState.PAUSING
_UNKNOWN = AttemptState.UNKNOWN


class Claims:
    """Keeps the claims in `capacity` as they are now, and live attempts by some of their states."""

    def __init__(self, capacity: Capacity) -> None:
        self._capacity = capacity
        self.silent: dict[AttemptKey, None] = {}  # UNKNOWN attempts
        self.pausing: dict[AttemptKey, None] = {}  # PAUSING attempts: they save and leave
        self.suspended: dict[AttemptKey, None] = {}  # off their GPUs, or on the way
        self.out: dict[AttemptKey, Allocation] = {}  # of these: where they come back to
        self.outgrown: list[Attempt] = []  # as they were before their GPUs changed

    def change(self, held: Attempt | None, holds: Attempt | None) -> None:
        """From one value of a live attempt to the next; None where there is none."""
        if holds is not None and holds.suspension is not None:
            self._suspend(holds)
        elif held is not None and held.suspension is not None:
            del self.suspended[held.key]
            self.out.pop(held.key, None)
        if held is not None and holds is not None:
            if _other_gpus(held, holds):
                if held.lease.allocation != holds.lease.allocation:
                    self.outgrown.append(held)
                self._exchange(held, holds)
                self._index_state(held, holds)
                return
            if held.state is holds.state and held.suspension is holds.suspension:
                return
        elif held is holds:  # there is none, and was none
            return
        self._claim(held, holds)
        self._index_state(held, holds)

    def _suspend(self, holds: Attempt) -> None:
        self.suspended[holds.key] = None
        if holds.is_out:
            self.out[holds.key] = holds.place
        else:
            self.out.pop(holds.key, None)

    def _claim(self, held: Attempt | None, holds: Attempt | None) -> None:
        capacity = self._capacity
        if (held is not None and _is_going(held)) or (holds is not None and _is_going(holds)):
            self._exchange(held, holds)
        elif held is None:
            if holds is not None:
                capacity.claim(holds.key, holds.lease.allocation, soon=holds.state is _PAUSING)
        elif holds is None:
            capacity.release(held.key, held.lease.allocation, soon=held.state is _PAUSING)
        elif _PAUSING in (held.state, holds.state):
            capacity.mark_soon(holds.lease.allocation, soon=holds.state is _PAUSING)

    def _exchange(self, held: Attempt | None, holds: Attempt | None) -> None:
        """Either value keeps GPUs to go on later, or gives some away: both claims count."""
        capacity = self._capacity
        if held is not None:
            if held.frees:
                capacity.mark_soon(held.leaves, soon=False)
            capacity.release(held.key, held.claims, soon=False)
        if holds is not None:
            capacity.claim(holds.key, holds.claims, soon=False)
            if holds.frees:
                capacity.mark_soon(holds.leaves, soon=True)

    def _index_state(self, held: Attempt | None, holds: Attempt | None) -> None:
        if held is not None:
            if held.state is _UNKNOWN:
                del self.silent[held.key]
            elif held.state is _PAUSING:
                del self.pausing[held.key]
        if holds is not None:
            if holds.state is _UNKNOWN:
                self.silent[holds.key] = None
            elif holds.state is _PAUSING:
                self.pausing[holds.key] = None


def _other_gpus(held: Attempt, holds: Attempt) -> bool:
    """Whether it keeps, has or gives away other GPUs than before."""
    return (
        held.regrant is not holds.regrant
        or held.resize is not holds.resize
        or held.lease.allocation != holds.lease.allocation
        or (holds.resize is not None and held.ranks is not holds.ranks)
    )


def _is_going(attempt: Attempt) -> bool:
    return (
        attempt.regrant is not None or attempt.resize is not None or attempt.suspension is not None
    )

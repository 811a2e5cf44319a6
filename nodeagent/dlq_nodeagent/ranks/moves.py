"""Moves of ranks off their GPUs and back, as the master orders them; one at a time for each rank.

An order is in the journal before it is answered. A move that an earlier agent had begun is ordered
again. Its result counts only while the rank still waits for it: a stop does not wait.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from dlq_common.clock import Clock
from dlq_common.daemon.logs import get_logger
from dlq_nodeagent.model.errands import Errands, Move, MoveResult
from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.messages import Fence, Resume, Suspend
from dlq_nodeagent.model.port import Runtime, RuntimeFault
from dlq_nodeagent.model.rank import (
    MOVING,
    TABLE,
    BackAsked,
    CameBack,
    OutAsked,
    RankEvent,
    RankState,
    StayedIn,
    Stranded,
    UsersFound,
    WentOut,
    refuses_gpus,
)
from dlq_nodeagent.ranks.watched import Watched

_AGAIN_S = 1.0
MEMORY_NEEDED = "the host needs the memory"

log = get_logger("nodeagent.moves")


def _never() -> bool:
    return False


@dataclass(slots=True, kw_only=True)
class RankMoves:
    """`fenced_rank`: the rank with this fence, or the word of a refusal. `short`: whether the host
    has too little memory left; asked about once a second while a rank is suspended.
    """

    clock: Clock
    runtime: Runtime
    errands: Errands
    apply: Callable[[Watched, RankEvent], None]
    sync: Callable[[], None]
    fenced_rank: Callable[[RankKey, Fence], Watched | str]
    open_ranks: Collection[Watched]
    short: Callable[[], bool] = _never
    _look_s: float = 0.0

    def ask(self, order: Suspend | Resume) -> str:
        """Take an order; returns an empty text, or the fixed word of a refusal. May be repeated."""
        found = self.fenced_rank(order.key, order.fence)
        if isinstance(found, str):
            return found
        if isinstance(order, Suspend):
            event: OutAsked | BackAsked = OutAsked(order.number)
        else:
            event = BackAsked(order.number, order.gpu_indexes)
        if found.handle is None or (found.rank.state, type(event)) not in TABLE:
            return "not_running"
        if isinstance(event, BackAsked) and refuses_gpus(found.rank, event.gpu_indexes):
            return "other_gpus"
        log.info("move_taken", key=str(order.key), out=isinstance(order, Suspend))
        self.apply(found, event)
        return ""

    def drive(self, watched: Watched, now_s: float) -> None:
        """Begin the move that a rank waits for, unless it is under way."""
        if watched.moving or now_s < watched.move_at_s or watched.handle is None:
            return
        asked = watched.rank.suspension
        if watched.rank.state is RankState.SUSPENDED:
            if asked is not None and not asked.out and not asked.failure:
                self.apply(watched, BackAsked(asked.number))  # asked for while it was leaving
            return
        watched.moving = True
        self.sync()
        rank = watched.rank
        try:
            still = self.runtime.standstill(watched.handle)
        except RuntimeFault as fault:  # nothing has moved: the master waits only so long
            watched.moving = False
            watched.move_at_s = now_s + _AGAIN_S
            log.warning("move_not_begun", key=str(rank.launch.key), why=str(fault))
            return
        self.errands.move(
            Move(
                launch=rank.launch,
                out=rank.state is RankState.SUSPENDING,
                still=still,
                held=self._held(),
                pids=() if asked is None else asked.pids,
                nbytes=0 if asked is None else asked.nbytes,
                came_from=() if asked is None else asked.came_from,
            )
        )

    def done(self, key: RankKey, result: MoveResult) -> None:
        """The answer to a move; too late when the rank was stopped meanwhile, or has ended."""
        found = [it for it in self.open_ranks if it.rank.launch.key == key and it.moving]
        for watched in found:
            watched.moving = False
            if watched.rank.state in MOVING:
                self._take(watched, result)

    def make_room(self, now_s: float) -> None:
        """Give up the rank that was suspended last, if the host needs the memory."""
        if now_s < self._look_s:
            return
        self._look_s = now_s + _AGAIN_S
        held = [
            it
            for it in self.open_ranks
            if it.rank.state is RankState.SUSPENDED and it.rank.suspension is not None
        ]
        if any(it.rank.suspension.failure for it in held if it.rank.suspension):
            return  # one is on its way out
        if held and self.short():
            last = max(held, key=lambda it: it.recorded_s)
            log.warning("suspended_rank_given_up", key=str(last.rank.launch.key))
            self.apply(last, Stranded(MEMORY_NEEDED))

    def _held(self) -> dict[RankKey, int]:
        return {
            it.rank.launch.key: it.rank.suspension.nbytes
            for it in self.open_ranks
            if it.rank.suspension is not None and it.rank.state in (RankState.SUSPENDED, *MOVING)
        }

    def _take(self, watched: Watched, result: MoveResult) -> None:
        if result.broken:
            self._failed(watched, result.broken)
        elif watched.rank.state is RankState.RESUMING:
            if result.refusal:  # its GPUs are not free yet
                watched.move_at_s = self.clock.boottime_s() + _AGAIN_S
                return
            self.apply(watched, CameBack(result.took_s))
        elif result.refusal:
            self.apply(watched, StayedIn(result.refusal))
        elif result.found:
            self.apply(watched, UsersFound(result.found, result.nbytes))
            self.drive(watched, self.clock.boottime_s())
        else:
            self.apply(watched, WentOut(result.nbytes, result.took_s, result.own_only))

    def _failed(self, watched: Watched, why: str) -> None:
        watched.moving = False
        log.error("rank_stranded", key=str(watched.rank.launch.key), why=why)
        self.apply(watched, Stranded(why))

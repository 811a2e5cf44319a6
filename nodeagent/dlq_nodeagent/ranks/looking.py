"""Looks at the files and GPUs of ranks: new checkpoints, and whether GPUs are free after an end."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from dlq_common.clock import Clock
from dlq_nodeagent.model.errands import Errands, Look, LookOrder, Purpose
from dlq_nodeagent.model.port import ExitRecord, Runtime
from dlq_nodeagent.ranks.watched import UNKILLABLE, Watched, found


@dataclass(frozen=True, slots=True, kw_only=True)
class Looking:
    """Orders looks and uses their results. Its state is in the watched ranks."""

    clock: Clock
    runtime: Runtime
    errands: Errands
    boot_id: str
    release_timeout_s: float
    """How long memory of a GPU may stay in use after the end before the master must hear of it."""
    open_ranks: Collection[Watched]

    def if_due(self, watched: Watched, purpose: Purpose, period_s: float) -> None:
        """Look if the last look was `period_s` ago and has returned."""
        if watched.looking is None and self.clock.boottime_s() >= watched.look_at_s:
            self.now(watched, purpose, period_s)

    def now(self, watched: Watched, purpose: Purpose, period_s: float) -> None:
        """Look now, also while another look is under way."""
        watched.looking = purpose
        watched.look_sent_s = self.clock.boottime_s()
        watched.look_at_s = watched.look_sent_s + period_s
        record = watched.rank.record
        self.errands.look(
            LookOrder(
                launch=watched.rank.launch,
                purpose=purpose,
                floor_mtime_ns=watched.rank.floor_mtime_ns,
                settled=record is not None and record.code is not None,
                given_out=self._given_out(watched) if purpose is Purpose.RELEASE else frozenset(),
            )
        )

    def _given_out(self, watched: Watched) -> frozenset[int]:
        """GPUs of a rank that ended while it was suspended, and that other ranks have now. Its
        processes cannot be on them, so the look skips these.
        """
        if not watched.rank.off_gpus:
            return frozenset()
        others = (it.rank for it in self.open_ranks if it is not watched)
        return frozenset(index for rank in others for index in rank.gpus_of_its_own)

    def take(self, watched: Watched, look: Look) -> bool:
        """Store a checkpoint that is newer than the known one; returns whether there was one."""
        seen, known = look.checkpoint, watched.rank.checkpoint
        if seen is None or (known is not None and seen.mtime_ns <= known.mtime_ns):
            return False
        checkpoint = found(seen, self.clock.boottime_s(), watched.beat)
        watched.rank = replace(watched.rank, checkpoint=checkpoint)
        return True

    def ended_s(self, record: ExitRecord) -> float:
        """Boottime of an end; one from before the host's boot is placed by the wall clock."""
        if record.boot_id in ("", self.boot_id):
            return record.ended_boottime_ns / 1e9
        ago_s = max(0.0, self.clock.now_s() - record.ended_wall_ns / 1e9)
        return self.clock.boottime_s() - ago_s

    def obstacle(self, watched: Watched, look: Look) -> str | None:
        """Why its GPUs are not free; "": it is too early to say; None: they are free."""
        if self.unkillable(watched):
            return UNKILLABLE
        if look.released is not False:
            return None
        late_s = self.clock.boottime_s() - (watched.rank.ended_s or 0.0)
        return f"gpu_not_released: {look.held_by}" if late_s >= self.release_timeout_s else ""

    def unkillable(self, watched: Watched) -> bool:
        """Whether processes of it are left that no signal ends."""
        record = watched.rank.record
        if record is None or record.remaining_pids == 0 or watched.handle is None:
            return False
        if record.boot_id != self.boot_id:
            return False
        return self.runtime.usage(watched.handle).pids != 0

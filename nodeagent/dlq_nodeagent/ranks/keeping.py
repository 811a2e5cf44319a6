"""Writes ranks to the journal, and removes ended ranks after a while."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from dlq_common.clock import Clock
from dlq_common.daemon.logs import get_logger
from dlq_nodeagent.model.errands import Errands
from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.messages import Launch
from dlq_nodeagent.model.port import Runtime, RuntimeFault
from dlq_nodeagent.model.rank import OVER, Rank, RankState
from dlq_nodeagent.ranks.watched import Watched
from dlq_nodeagent.state.journal import DISK_REMEDY, KEPT_OF_A_RANK, Journal, RankRecord

_RECORD_AGAIN_S = 5.0

log = get_logger("nodeagent.keeping")


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """Ended ranks are kept for their logs, and to recognise late commands: `keep_count` at most,
    none longer than `keep_s`.
    """

    clock: Clock
    runtime: Runtime
    journal: Journal
    errands: Errands
    keep_s: float
    keep_count: int
    _unsynced: list[Watched] = field(default_factory=list)
    """Ranks whose last record must be on disk before it is reported."""
    _kept: dict[RankKey, Watched] = field(default_factory=dict)
    """The oldest record first."""

    def record(self, watched: Watched) -> OSError | None:
        """Write a rank to the journal; it is durable after the next `sync`. Returns the error of a
        failure; then `catch_up` writes it again.
        """
        try:
            self._record(watched)
        except OSError as error:
            self._mark(watched, error)
            return error
        watched.unrecorded = False
        if not _may_wait(watched.rank):
            self._unsynced.append(watched)
        return None

    def sync(self) -> OSError | None:
        """Make all records durable that must be. Returns the error of a failure; then `catch_up`
        writes them again.
        """
        waiting = self._unsynced[:]
        self._unsynced.clear()
        try:
            if waiting:
                self.journal.sync()
        except OSError as error:
            for watched in waiting:
                self._mark(watched, error)
            return error
        for watched in waiting:
            watched.written = True
        return None

    def _mark(self, watched: Watched, error: OSError) -> None:
        if not watched.unrecorded:
            log.error(
                "rank_not_recorded",
                key=str(watched.rank.launch.key),
                error=str(error),
                remedy=DISK_REMEDY,
            )
        watched.unrecorded = True

    def catch_up(self, watched: Iterable[Watched]) -> None:
        """Write records again that failed, such as on a full disk."""
        now_s = self.clock.now_s()
        for it in watched:
            if it.unrecorded and now_s - it.recorded_s >= _RECORD_AGAIN_S:
                self.record(it)

    def _record(self, watched: Watched) -> None:
        rank = watched.rank
        watched.recorded_s = self.clock.now_s()
        launch = rank.launch
        if rank.state in OVER:
            # It will never start again: its secrets need not lie on the disk.
            launch = watched.bare = watched.bare or without_secrets(launch)
        self.journal.save_rank(
            RankRecord(
                **{name: getattr(rank, name) for name in KEPT_OF_A_RANK},
                launch=launch,
                state=rank.state,
                recorded_s=watched.recorded_s,
                end_told=watched.end_told,
                found=watched.found,
                profiled=watched.profiled,
                steps_told=watched.steps.told,
            )
        )

    def keep(self, watched: Watched) -> None:
        """Keep a rank without open work."""
        self._kept[watched.rank.launch.key] = watched

    def too_old(self) -> list[Watched]:
        """The kept ranks that are too old or too many."""
        surplus = len(self._kept) - self.keep_count
        oldest_s = self.clock.now_s() - self.keep_s
        beyond: list[Watched] = []
        for watched in self._kept.values():
            if len(beyond) >= surplus and watched.recorded_s >= oldest_s:
                break
            beyond.append(watched)
        return beyond

    def forget(self, watched: Watched) -> None:
        key = watched.rank.launch.key
        if watched.handle is not None:
            try:
                self.runtime.forget(watched.handle)
            except RuntimeFault as fault:
                log.error("rank_not_forgotten", key=str(key), error=str(fault))
        self.errands.tidy(key)
        self.journal.drop_rank(key)
        self._kept.pop(key, None)


def _may_wait(rank: Rank) -> bool:
    """Whether its record is of use only while the host lives: a later one takes it along. After a
    power cut the master confirms an end again, and ports are found anew, if nobody was told.
    """
    if rank.state is RankState.KEPT:
        return True
    only_ports = not rank.floor_mtime_ns and not rank.image_digest and not rank.launch.at_barrier
    return rank.state is RankState.PREPARING and rank.prepared and only_ports


def without_secrets(launch: Launch) -> Launch:
    """The launch as the record of an ended rank holds it; the same one if it has none."""
    bare = not launch.environment and not launch.script
    return launch if bare else replace(launch, environment={}, script="")

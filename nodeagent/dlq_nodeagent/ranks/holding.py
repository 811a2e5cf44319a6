"""The hold extension: how much longer ranks survive the master's silence, passed to every shim.

Every welcome and heartbeat reply carries it, so it is not stored. After a restart of the agent all
shims get it again. The master counts it as in force only when every shim has it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dlq_common.daemon.logs import get_logger
from dlq_nodeagent.model.port import NotDelivered, Runtime, RuntimeFault
from dlq_nodeagent.model.rank import ALIVE
from dlq_nodeagent.ranks.watched import Watched

log = get_logger("nodeagent.holding")


@dataclass(slots=True, kw_only=True)
class Holding:
    runtime: Runtime
    epoch: Callable[[], int]
    revision: int | None = None
    """None: the master has not sent one since the agent started."""
    extension_s: float = 0.0
    _in_force: bool = False

    def take(self, revision: int, extension_s: float) -> None:
        """Remember the extension that the master has sent."""
        if (revision, extension_s) != (self.revision, self.extension_s):
            log.info("hold_extension", revision=revision, extension_s=extension_s)
            self.revision, self.extension_s = revision, extension_s
            self._in_force = False

    def in_force(self) -> int:
        """The revision that every living rank has; 0 for none."""
        return (self.revision or 0) if self._in_force else 0

    def apply(self, everybody: Iterable[Watched]) -> None:
        """Pass the extension to all shims that lack it; failed ones get it at the next call."""
        if self.revision is None:
            return
        told = [self._tell(watched) for watched in everybody if self._is_behind(watched)]
        self._in_force = all(told)

    def _is_behind(self, watched: Watched) -> bool:
        living = watched.handle is not None and watched.rank.state in ALIVE
        return living and not watched.orphan and watched.hold_extension_s != self.extension_s

    def _tell(self, watched: Watched) -> bool:
        assert watched.handle is not None
        hold_s = watched.rank.launch.hold_s + self.extension_s
        try:
            self.runtime.extend_hold(watched.handle, epoch=self.epoch(), hold_s=hold_s)
        except NotDelivered:
            return False
        except RuntimeFault as fault:
            log.error("hold_refused_by_runtime", key=str(watched.handle.key), error=str(fault))
            return False
        watched.hold_extension_s = self.extension_s
        return True

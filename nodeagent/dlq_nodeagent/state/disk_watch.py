"""How much room is left where the agent keeps its state, which every rank and its end need.

A job may fill the disk and stay. Then no rank placed here can start: the master must know, and
places none until there is room again.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from dlq_common.clock import Clock
from dlq_common.daemon.logs import get_logger
from dlq_nodeagent.model.messages import DiskSpace

# There is room again only when there is this much more: a disk that hovers is one story, not a
# hundred.
_AGAIN = 1.25
_LEAST_FILES = 10_000
_TELL_AGAIN_S = 60.0

log = get_logger("nodeagent.disk")


class Free(NamedTuple):
    """Room for users without privileges: bytes, and files (-1: no limit)."""

    size_bytes: int
    files: int


def free_at(path: Path) -> Free:
    """Raises OSError."""
    found = os.statvfs(path)
    return Free(found.f_bavail * found.f_frsize, found.f_favail if found.f_files else -1)


@dataclass(slots=True, kw_only=True)
class DiskWatch:
    """Asked with every heartbeat. `spare_bytes` 0: the disk is never taken for full."""

    clock: Clock
    path: Path
    spare_bytes: int
    free: Callable[[Path], Free] = free_at
    full: bool = field(default=False, init=False)
    _told: DiskSpace | None = field(default=None, init=False)
    _told_s: float = field(default=0.0, init=False)

    def told(self, first: bool) -> DiskSpace | None:
        """The disk's room for a heartbeat; None: the last report still holds."""
        try:
            free = self.free(self.path)
        except OSError as error:
            log.error("disk_not_looked_at", path=str(self.path), error=str(error))
            return None
        full = self._is_full(free)
        if full != self.full:
            log.warning("disk_full" if full else "disk_has_room", free=free.size_bytes)
        self.full = full
        now_s = self.clock.boottime_s()
        says = DiskSpace(full=full, free_bytes=free.size_bytes, spare_bytes=self.spare_bytes)
        news = self._told is None or full != self._told.full
        if not (first or news or (full and now_s - self._told_s >= _TELL_AGAIN_S)):
            return None
        self._told, self._told_s = says, now_s
        return says

    def _is_full(self, free: Free) -> bool:
        if not self.spare_bytes:
            return False
        more = _AGAIN if self.full else 1.0
        no_files = 0 <= free.files < _LEAST_FILES * more
        return free.size_bytes < self.spare_bytes * more or no_files

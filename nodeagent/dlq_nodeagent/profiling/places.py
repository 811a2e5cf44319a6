"""The places of ranks' records, and their making and removal.

STATE_DIR/profiles/            0711: jobs pass through, and list nothing
  JOB.ATTEMPT.NODE_RANK/       0711, root's
    before.json      0600      what was known before the start
    rings/           0700      the job's own: `control`, and what it recorded

The agent works in `rings` with the rights of the job's user, and it follows no link there. A place
is removed when its evidence is on the agent's own disk, and when nobody needs it after a restart.
"""

import json
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dlq_nodeagent.jobtree.files import json_object, read_small
from dlq_nodeagent.jobtree.sweeping import sweep
from dlq_nodeagent.jobtree.user_rights import UserRights
from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.mistakes import LaunchRefused
from dlq_nodeagent.state.state_dir import replace_file
from dlq_profiler.records.control import switch, write_control
from dlq_profiler.results import TrafficReason

_MODE = 0o711
_MOST_NAMES = 10_000


@dataclass(frozen=True, slots=True)
class Before:
    """Facts from before a rank's start: whether it was given the profiler, and the obstacles."""

    recording: bool
    limits: tuple[TrafficReason, ...] = ()


@dataclass(frozen=True, slots=True)
class Places:
    root: Path

    @classmethod
    def of(cls, state_dir: Path) -> "Places":
        return cls(state_dir / "profiles")

    def rings(self, key: RankKey) -> Path:
        """The directory of a rank's records (DLQ_PROF_DIR)."""
        return self.root / str(key) / "rings"

    def make(self, key: RankKey, rights: UserRights, *, file_limit: int, ring_bytes: int) -> Path:
        """A place with recording switched on, new for each preparation. Raises OSError."""
        self._make_home(key)
        rings = self.rings(key)
        _remove(rings)
        rings.mkdir(mode=0o700)
        if os.geteuid() == 0:
            os.chown(rings, rights.uid, rights.gid)
        with rights.taken():
            write_control(rings, file_limit=file_limit, ring_bytes=ring_bytes)
        return rings

    def note(self, key: RankKey, before: Before) -> None:
        self._make_home(key)
        words = {"recording": before.recording, "limits": before.limits}
        replace_file(self.root / str(key) / "before.json", json.dumps(words).encode())

    def before(self, key: RankKey) -> Before | None:
        """The noted facts; None: nothing, or not any more."""
        found = read_small(str(self.root / str(key) / "before.json"), most_bytes=65_536)
        told = {} if found is None else json_object(found.content)
        try:
            return Before(
                told["recording"] is True, tuple(TrafficReason(word) for word in told["limits"])
            )
        except (KeyError, TypeError, ValueError):
            return None

    def switch_off(self, key: RankKey, rights: UserRights) -> None:
        """No process records any more, whether it runs or will be started. A job that spoils its
        own switch loses its own profile.
        """
        with rights.taken(), suppress(OSError, ValueError):
            switch(self.rings(key), on=False)

    def has_files(self, key: RankKey, rights: UserRights) -> bool:
        """Whether anything but the switch is there."""
        with rights.taken(), suppress(OSError), os.scandir(self.rings(key)) as entries:
            return any(not entry.name.startswith((".", "control")) for entry in entries)
        return False

    def remove(self, key: RankKey) -> bool:
        """Whether it is gone; with more names in it than any rank makes, a part may be left."""
        # The rings first: they are their user's, and a sweep goes into no directory of another
        # owner.
        return _remove(self.rings(key)) and _remove(self.root / str(key))

    def keep_only(self, keys: Iterable[RankKey]) -> None:
        """Remove all but these; an earlier agent may have left some."""
        kept = set(keys)
        with suppress(FileNotFoundError):
            for name in os.listdir(self.root)[:_MOST_NAMES]:
                with suppress(LaunchRefused):
                    key = RankKey.parse(name)
                    if key not in kept:
                        self.remove(key)

    def _make_home(self, key: RankKey) -> None:
        for path in (self.root, self.root / str(key)):
            path.mkdir(exist_ok=True)
            path.chmod(_MODE)


def _remove(directory: Path) -> bool:
    try:
        held = os.lstat(directory)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    if not stat.S_ISDIR(held.st_mode) or not sweep(directory, keep_below_bytes=0):
        return False
    try:
        directory.rmdir()
    except OSError:
        return False
    return True

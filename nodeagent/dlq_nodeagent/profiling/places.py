"""The places of ranks' records, and their making, reading and removal.

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
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from dlq_common.clock import Clock
from dlq_common.daemon.logs import get_logger
from dlq_nodeagent.devices.port import Device
from dlq_nodeagent.jobtree.files import json_object, read_small
from dlq_nodeagent.jobtree.sweeping import sweep
from dlq_nodeagent.jobtree.user_rights import UserRights
from dlq_nodeagent.model.errands import ReadOrder
from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.messages import Launch, ProfileFound
from dlq_nodeagent.model.mistakes import LaunchRefused
from dlq_nodeagent.profiling.reading import RingReader, RingReading, limits_of_process
from dlq_nodeagent.state.state_dir import replace_file
from dlq_profiler.records.control import switch, write_control
from dlq_profiler.records.tail import TrafficLook, look
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
        told = {} if found is None else json_object(found)
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


# One takes a hundred thousand names away; the libraries make a few dozen.
_SWEEPS = 10

log = get_logger("nodeagent.profiling")


@dataclass(frozen=True, slots=True, kw_only=True)
class Station:
    """The real one. `rights_of` and `devices_of` are launching's."""

    clock: Clock
    places: Places
    rights_of: Callable[[Launch], UserRights]
    devices_of: Callable[[Launch], Sequence[Device]]
    drops: bool
    """The agent is root, and its jobs are not."""
    reader: RingReader = field(default_factory=RingReader)

    def read(self, order: ReadOrder) -> ProfileFound:
        """Switch recording off and read the rings. May be repeated until they are removed."""
        launch = order.launch
        ended_s = self.clock.now_s()
        rights = self.rights_of(launch)
        limits: tuple[TrafficReason, ...] = ()
        before = self.places.before(launch.key)
        if order.main_pid is not None and before is not None and before.recording:
            limits = limits_of_process(order.main_pid)
        self.places.switch_off(launch.key, rights)
        if before is None:
            return self._found(order, RingReading(), (TrafficReason.NO_DIRECTORY,), ended_s)
        reading = RingReading()
        if self.places.has_files(launch.key, rights):
            reading = self.reader.read(self.places.rings(launch.key), rights, drop=self.drops)
        limits = tuple(dict.fromkeys(before.limits + limits + reading.limits))
        return self._found(order, reading, limits, ended_s)

    def look(self, launch: Launch, since_s: float) -> TrafficLook | None:
        """The newest sends of a rank that is recorded; None: there are none, or no records."""
        rights = self.rights_of(launch)
        # Records have the time of CLOCK_MONOTONIC, which stands still while a machine sleeps.
        now_ns = time.monotonic_ns()
        since_ns = now_ns - round((self.clock.boottime_s() - since_s) * 1e9)
        with rights.taken(), suppress(OSError):
            return look(self.places.rings(launch.key), now_ns, since_ns)
        return None

    def failed(self, order: ReadOrder) -> ProfileFound:
        return self._found(order, RingReading(failure=TrafficReason.FAILED), (), self.clock.now_s())

    def remove(self, key: RankKey) -> None:
        if not any(self.places.remove(key) for _ in range(_SWEEPS)):
            log.warning("rings_not_removed", key=str(key))

    def _found(
        self,
        order: ReadOrder,
        reading: RingReading,
        limits: tuple[TrafficReason, ...],
        ended_s: float,
    ) -> ProfileFound:
        from dlq_nodeagent.profiling.finding import found_of  # most agents read no profile

        types = {device.gpu_type for device in self.devices_of(order.launch)}
        return found_of(
            order.launch,
            reading,
            limits,
            gpu_type=types.pop() if len(types) == 1 else "",
            window_s=order.window_s,
            ended_s=ended_s,
        )

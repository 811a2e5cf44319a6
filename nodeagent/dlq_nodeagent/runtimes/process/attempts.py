"""One attempt of the `process` runtime as the agent holds it: open files, and how it ended."""

import os
import signal as signals
from contextlib import suppress

from dlq_common.clock import Clock
from dlq_common.daemon.logs import get_logger
from dlq_nodeagent.cgroups import directories
from dlq_nodeagent.cgroups.port import CgroupDir
from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.port import (
    ExitRecord,
    ExitWhy,
    Handle,
    NotDelivered,
    StaleEpoch,
    Started,
    StartError,
)
from dlq_nodeagent.runtimes.process import layout, planfile, records, shim_process

_log = get_logger("nodeagent.runtime")
LOOK_AGAIN_S = 0.25
UNKILLABLE_S = 30.0
"""After this long under SIGKILL the record names the remaining processes, as the shim's does."""


class OpenAttempt:
    """Open files of one attempt. Its directory is the truth; this can always be made again."""

    def __init__(
        self,
        handle: Handle,
        at: int,
        *,
        uid: int,
        gid: int,
        boot_id: str,
        ends: shim_process.Ends,
    ) -> None:
        """`at` is a descriptor of the directory and belongs to this object from now on; `ends`
        watches the shim, when there is one.
        """
        self.handle = handle
        self.at = at
        self.uid = uid
        self.gid = gid
        self.dirs: tuple[CgroupDir, ...] = ()
        self.record: ExitRecord | None = None
        self.pidfd: int | None = None
        self._boot_id = boot_id
        self._ends = ends
        self._highest_epoch = handle.epoch
        self._started: Started | None = None
        self._heard = -1  # so many starts when its record was looked for
        self._looks = ends.looks
        self._look_s = 0.0
        self._lost_since_s: float | None = None
        # Opened for reading too: words to a shim that is only starting wait in the pipe.
        flags = os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        self._ctl = os.open(layout.CTL, flags, dir_fd=at)

    @classmethod
    def adopt(
        cls, attempts_fd: int, key: RankKey, boot_id: str, ends: shim_process.Ends
    ) -> "OpenAttempt | None":
        """Take over an attempt of an earlier agent. None: it ended before its plan was whole, so
        that nothing was ever started.
        """
        at = layout.open_attempt(attempts_fd, key)
        data = layout.read(at, layout.PLAN)
        if data is None and not layout.exists(at, layout.EXIT):
            os.close(at)
            return None
        planned = _planned(data)
        layout.make_fifo(at)  # agents of dlq 0.2.0 that died removing an attempt left none
        handle = Handle(key, planned.epoch)
        attempt = cls(handle, at, uid=planned.uid, gid=planned.gid, boot_id=boot_id, ends=ends)
        attempt.dirs = planned.dirs
        return attempt

    def close(self) -> None:
        if self.pidfd is not None:
            self._ends.forget(self.pidfd)
        for descriptor in (self.at, self._ctl, self.pidfd):
            if descriptor is not None:
                os.close(descriptor)

    def watch(self, pidfd: int | None, clock: Clock) -> None:
        """Its shim has just been started. Without a descriptor it is still found, by its lock and
        its start record.
        """
        self.pidfd = pidfd
        if pidfd is not None:
            self._ends.watch(pidfd)
            self._heard = self._ends.starts
            self._look_s = clock.boottime_s() + LOOK_AGAIN_S

    def started_as_told(self, clock: Clock) -> Started | None:
        """The same as `started`. A shim that this agent has started says when its record is there.
        While somebody listens, the record is looked for after a word of some shim, and a few times
        a second.
        """
        if self._started is None:
            now_s, listened = clock.boottime_s(), self._looks != self._ends.looks
            self._looks = self._ends.looks
            if listened and self._heard == self._ends.starts and now_s < self._look_s:
                return None
            self._heard, self._look_s = self._ends.starts, now_s + LOOK_AGAIN_S
        return self.started()

    def started(self) -> Started | None:
        if self._started is None:
            data = layout.read(self.at, layout.STARTED)
            with suppress(ValueError):  # a power cut may leave the name alone
                self._started = None if data is None else records.parse_started(data)
        return self._started

    def send(self, epoch: int, words: str) -> None:
        """Hand a command to the shim; the write is atomic, so commands never mix."""
        if epoch < self._highest_epoch:
            raise StaleEpoch(f"{self.handle.key}: epoch {epoch} after {self._highest_epoch}")
        self._highest_epoch = epoch
        if self.record is not None:
            return
        line = f"1 {epoch} {self.handle.key.attempt} {words}\n".encode()
        try:
            os.write(self._ctl, line)
        except BlockingIOError as error:
            raise NotDelivered(f"{self.handle.key}: the shim does not take commands") from error

    def poll(self, clock: Clock) -> ExitRecord | None:
        """The exit record once the shim has ended; made here when the shim could not."""
        if self.record is None and not self._shim_seen():
            self.record = self._read_exit() or self._end_lost(clock)
            if self.record is not None:
                directories.remove(self.dirs)
        return self.record

    def end_unstarted(self, error: StartError, clock: Clock) -> None:
        """Record that the launch failed on the agent's side."""
        self._write(ExitWhy.START_ERROR, clock, start_error=error)

    def _shim_seen(self) -> bool:
        """Whether a shim that is known by pid and start time lives."""
        if self.pidfd is None:
            started = self.started()
            if started is None or started.boot_id != self._boot_id:
                return False
            self.pidfd = shim_process.open_pidfd(started.shim_pid, started.shim_start_ticks)
            if self.pidfd is not None and not shim_process.has_ended(self.pidfd):
                self._ends.watch(self.pidfd)
        if self.pidfd is None:
            return False
        return not shim_process.has_ended(self.pidfd)

    def _read_exit(self) -> ExitRecord | None:
        """None where there is none, or none that can be believed: that one is put aside."""
        data = layout.read(self.at, layout.EXIT)
        if data is None:
            return None
        try:
            return records.parse_exit(data, self.handle.key, self.handle.epoch)
        except ValueError as error:
            os.rename(layout.EXIT, layout.EXIT_DAMAGED, src_dir_fd=self.at, dst_dir_fd=self.at)
            _log.error(
                "exit_record_damaged",
                key=str(self.handle.key),
                file=f"{layout.ATTEMPTS}/{self.handle.key}/{layout.EXIT_DAMAGED}",
                cause=str(error),
                remedy="the end counts as unknown; look at the disk of this node",
            )
            return None

    def _read_unnamed(self) -> ExitRecord | None:
        """A whole exit record whose last name was lost in a power cut."""
        data = layout.read(self.at, layout.EXIT_DRAFT)
        try:
            if data is None:
                return None
            found = records.parse_exit(data, self.handle.key, self.handle.epoch)
        except ValueError:  # the room that the shim reserved, still empty
            return None
        os.rename(layout.EXIT_DRAFT, layout.EXIT, src_dir_fd=self.at, dst_dir_fd=self.at)
        return found

    def _end_lost(self, clock: Clock) -> ExitRecord | None:
        """No record and no visible shim: kill its remains, then write the record in its place.

        The lock decides. While another process holds it, a shim is starting (or its child is on the
        way to exec), so this is not the end. Once it is ours, a shim that starts late finds it
        taken, or finds our record, and runs nothing.
        """
        lock = shim_process.PlanLock(self.at)
        try:
            if not lock.take():
                return None
            late = self._read_exit() or self._read_unnamed()
            if late is not None:
                return late
            remaining = self._kill_leftovers()
            if remaining > 0 and self._time_lost_s(clock) < UNKILLABLE_S:
                return None
            return self._write_lost(remaining, clock)
        except OSError:  # a full disk: not ended before it is on record, so try again
            return None
        finally:
            lock.close()

    def _time_lost_s(self, clock: Clock) -> float:
        now_s = clock.boottime_s()
        if self._lost_since_s is None:
            self._lost_since_s = now_s
        return now_s - self._lost_since_s

    def _kill_leftovers(self) -> int:
        """Send one round of SIGKILL; returns how many processes were still there."""
        if self.dirs:
            return directories.kill(self.dirs)
        started = self.started()
        if started is None or started.boot_id != self._boot_id:
            return 0
        left = shim_process.session_pids(started.main_pid, started.main_start_ticks)
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signals.SIGKILL)
        return len(left)

    def _write_lost(self, remaining: int, clock: Clock) -> ExitRecord:
        """The shim reserves its exit record before it starts anything: without that file the main
        process certainly never ran.
        """
        if layout.exists(self.at, layout.EXIT_DRAFT) or layout.exists(self.at, layout.STARTED):
            return self._write(ExitWhy.SHIM_LOST, clock, remaining=remaining)
        never = StartError(stage="shim", errno=0, text="the agent ended before the launch")
        return self._write(ExitWhy.START_ERROR, clock, start_error=never)

    def _write(
        self,
        why: ExitWhy,
        clock: Clock,
        *,
        remaining: int = 0,
        start_error: StartError | None = None,
    ) -> ExitRecord:
        started, used = self.started(), directories.usage(self.dirs)
        record = ExitRecord(
            key=self.handle.key,
            epoch=self.handle.epoch,
            why=why,
            code=None,
            signal=None,
            start_error=start_error,
            oom_kills=used.oom_kills or 0,
            peak_memory_bytes=used.peak_memory_bytes,
            cpu_s=used.cpu_s or 0.0,
            started_boottime_ns=started.started_boottime_ns if started else None,
            started_wall_ns=started.started_wall_ns if started else None,
            ended_boottime_ns=int(clock.boottime_s() * 1e9),
            ended_wall_ns=int(clock.now_s() * 1e9),
            boot_id=started.boot_id if started else self._boot_id,
            remaining_pids=remaining,
        )
        records.write_exit(self.at, record)
        return record


def _planned(data: bytes | None) -> planfile.PlannedLaunch:
    """The launch in the plan; after a power cut it may be empty, and then nothing of it lives."""
    try:
        return planfile.decode(data or b"")
    except ValueError:
        return planfile.PlannedLaunch(0, -1, -1, ())

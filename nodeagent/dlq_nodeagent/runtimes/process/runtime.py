"""The `process` runtime: each rank is a process tree guarded by its own shim."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path

from dlq_common.clock import Clock
from dlq_common.daemon.logs import get_logger
from dlq_common.errors import ConfigError
from dlq_common.start_causes import StartCause
from dlq_nodeagent.cgroups import directories
from dlq_nodeagent.cgroups.port import CgroupDir, CgroupTree, Limits, RankUsage
from dlq_nodeagent.jobtree.files import opened
from dlq_nodeagent.jobtree.steps import MOST_STEPS_BYTES
from dlq_nodeagent.model.launch import LaunchPlan, RankKey
from dlq_nodeagent.model.mistakes import LaunchRefused
from dlq_nodeagent.model.port import (
    AttemptExists,
    ExitRecord,
    Handle,
    Inside,
    JobFiles,
    LogChunk,
    NotDelivered,
    RuntimeFault,
    Standstill,
    Started,
    StepsFile,
    StopNotice,
    UnknownAttempt,
)
from dlq_nodeagent.runtimes.process import layout, logs, planfile, records, shim_process
from dlq_nodeagent.runtimes.process.attempts import OpenAttempt
from dlq_nodeagent.runtimes.process.logs import highest_start
from dlq_nodeagent.shim.contact import read_boot_id
from dlq_nodeagent.suspension.standstill import GroupStandstill, SessionStandstill

_MAX_BEAT_BYTES = 65_536
_MAX_TASK_BYTES = 64

_log = get_logger("nodeagent.runtime")


class ProcessRuntime:
    """Runs ranks as processes below a shim, in control groups where the host has them."""

    name = "process"
    _sees_main = True  # the main process is the job's own program

    def __init__(
        self, *, state_dir: Path, contact: Path, cgroups: CgroupTree, shim: Path, clock: Clock
    ) -> None:
        """`contact` is the file of shim/contact.py; `shim` is the result of `ensure_shim()`."""
        self._state_dir = state_dir.absolute()
        self._contact = contact.absolute()
        self._cgroups = cgroups
        self._shim = shim
        self._clock = clock
        self._boot_id = read_boot_id()
        self._attempts_fd = layout.open_attempts(self._state_dir)
        self._attempts: dict[RankKey, OpenAttempt] = {}
        self._ends = shim_process.Ends()
        self._launcher = shim_process.Launcher(shim, self._ends.news)

    def close(self) -> None:
        """Let go of all descriptors; the jobs go on."""
        for attempt in self._attempts.values():
            attempt.close()
        self._attempts.clear()
        self._launcher.close()
        self._ends.close()
        os.close(self._attempts_fd)

    def job_files(self, key: RankKey) -> JobFiles:
        return layout.job_files(self._state_dir, key)

    # ---- start, recover, forget

    def start(self, plan: LaunchPlan) -> Handle:
        self._refuse_unless_passable(plan)
        try:
            at = layout.make_attempt(self._attempts_fd, plan.key, uid=plan.uid, gid=plan.gid)
        except FileExistsError as error:
            raise AttemptExists(str(plan.key)) from error
        except OSError as error:
            layout.remove_attempt(self._state_dir, self._attempts_fd, plan.key)
            raise RuntimeFault(f"{plan.key}: no directory for it: {error}") from error
        handle = Handle(plan.key, plan.epoch)
        attempt = OpenAttempt(
            handle, at, uid=plan.uid, gid=plan.gid, boot_id=self._boot_id, ends=self._ends
        )
        self._attempts[plan.key] = attempt
        stage = "cgroup"
        try:
            attempt.dirs = self._make_groups(plan)
            stage = "shim"
            more = self._more_records(plan, attempt)
            encoded = planfile.encode(plan, attempt.dirs, self._contact, more)
            layout.write(at, layout.PLAN, encoded, durable=False, readable_by_gid=None)
            home = layout.attempt_path(self._state_dir, plan.key)
            attempt.watch(self._launcher.start(home), self._clock)
        except OSError as error:
            attempt.end_unstarted(records.start_error(stage, error), self._clock)
        return handle

    def recover(self) -> list[Handle]:
        keys = layout.list_keys(self._attempts_fd)
        for key in keys:
            if key in self._attempts:
                continue
            try:
                self._adopt(key)
            except OSError as error:
                path = layout.attempt_path(self._state_dir, key)
                raise ConfigError(
                    f"{path}: the record of a rank cannot be read: {error.strerror}",
                    hint="look at the disk; when the rank does not run, move the directory away",
                    key="node.state_dir",
                ) from error
        return [self._attempts[key].handle for key in keys if key in self._attempts]

    def _adopt(self, key: RankKey) -> None:
        attempt = OpenAttempt.adopt(self._attempts_fd, key, self._boot_id, self._ends)
        if attempt is None:
            self._remove_unplanned(key)
        else:
            self._attempts[key] = attempt
            attempt.poll(self._clock)

    def _remove_unplanned(self, key: RankKey) -> None:
        """Remove what an agent has left that died at a launch, or at a removal. Nothing runs there,
        so a directory that cannot be removed stops nobody.
        """
        try:
            with opened(str(key), at=self._attempts_fd) as at:
                self._tidy(at)
            layout.remove_attempt(self._state_dir, self._attempts_fd, key)
        except OSError as error:
            path = str(layout.attempt_path(self._state_dir, key))
            remedy = "remove it by hand; nothing of it runs"
            _log.error("attempt_not_removed", path=path, cause=str(error), remedy=remedy)

    def forget(self, handle: Handle) -> None:
        if not layout.exists(self._attempts_fd, str(handle.key)):
            return
        attempt = self._known(handle)
        if attempt.poll(self._clock) is None:
            raise RuntimeFault(f"{handle.key} is still running")
        directories.remove(attempt.dirs)
        self._tidy(attempt.at)
        layout.remove_attempt(self._state_dir, self._attempts_fd, handle.key)
        del self._attempts[handle.key]
        attempt.close()

    # ---- watch

    def started(self, handle: Handle) -> Started | None:
        return self._known(handle).started_as_told(self._clock)

    def poll(self, handle: Handle) -> ExitRecord | None:
        return self._known(handle).poll(self._clock)

    def exited(self, handles: Iterable[Handle]) -> list[ExitRecord]:
        self._ends.taken()
        found = (self.poll(handle) for handle in handles if not self._lives(handle))
        return [record for record in found if record is not None]

    def _lives(self, handle: Handle) -> bool:
        return self._ends.lives(self._known(handle).pidfd)

    def ends(self) -> int | None:
        return self._ends.descriptor

    def usage(self, handle: Handle) -> RankUsage:
        return directories.usage(self._known(handle).dirs)

    def disk(self, handle: Handle) -> tuple[int, int] | None:
        return directories.disk(self._known(handle).dirs)

    def read_log(self, handle: Handle, offset: int, limit: int) -> LogChunk:
        return logs.read_log(self._known(handle).at, offset, limit)

    def beat(self, handle: Handle) -> bytes | None:
        return self._job_file(handle, layout.BEAT, _MAX_BEAT_BYTES)

    def steps(self, handle: Handle, mark: str) -> StepsFile | None:
        attempt = self._known(handle)
        return layout.read_steps(attempt.at, mark, uid=attempt.uid, limit=MOST_STEPS_BYTES)

    def done(self, handle: Handle) -> bool:
        return self._job_file(handle, layout.DONE, 1) is not None

    # ---- a command beside the main process

    def inside(
        self, handle: Handle, command: Sequence[str], *, terminal: bool, variable: str = ""
    ) -> Inside:
        attempt = self._known(handle)
        pidfd = attempt.pidfd
        if attempt.poll(self._clock) is not None or attempt.started() is None or pidfd is None:
            raise RuntimeFault(f"{handle.key} does not run")
        engine = self._engine_words(attempt, terminal=terminal)
        return Inside(
            argv=(
                *(str(self._shim), "exec", str(layout.attempt_path(self._state_dir, handle.key))),
                *("yes" if terminal else "no", variable, str(len(engine)), *engine),
                *command,
            ),
            shim_pidfd=pidfd,
            uid=attempt.uid,
        )

    def standstill(self, handle: Handle) -> Standstill:
        attempt = self._known(handle)
        if attempt.dirs:
            return GroupStandstill(attempt.dirs)
        started = attempt.started()
        if started is None:
            raise RuntimeFault(f"{handle.key} does not run")
        of = partial(shim_process.session_pids, started.main_pid, started.main_start_ticks)
        return SessionStandstill(lambda: frozenset(of()))

    def boxed_init(self, handle: Handle) -> str:
        return ""

    def workers_done(self, handle: Handle) -> bool:
        return self._job_file(handle, layout.WORKERS_DONE, 1) is not None

    def worker_failures(self, handle: Handle) -> int:
        attempt = self._known(handle)
        return highest_start(attempt.at, uid=attempt.uid)

    def failed_task(self, handle: Handle) -> str:
        found = self._job_file(handle, layout.FAILED_TASK, _MAX_TASK_BYTES)
        return "" if found is None else found.decode("utf-8", "replace")

    def _job_file(self, handle: Handle, name: str, most_bytes: int) -> bytes | None:
        attempt = self._known(handle)
        return layout.read_job_file(attempt.at, name, uid=attempt.uid, limit=most_bytes)

    # ---- command

    def signal(self, handle: Handle, number: int, *, epoch: int) -> None:
        self._known(handle).send(epoch, f"signal {number}")

    def catches(self, handle: Handle, number: int) -> bool | None:
        started = self._known(handle).started()
        if started is None or not self._sees_main:
            return None
        return shim_process.catches(started.main_pid, started.main_start_ticks, number)

    def stop(
        self, handle: Handle, *, epoch: int, signal: int, grace_s: float, term_s: float
    ) -> None:
        words = f"stop {signal} {round(grace_s * 1000)} {round(term_s * 1000)}"
        self._known(handle).send(epoch, words)

    def kill(self, handle: Handle, *, epoch: int) -> None:
        self._known(handle).send(epoch, "kill")

    def extend_hold(self, handle: Handle, *, epoch: int, hold_s: float) -> None:
        self._known(handle).send(epoch, f"hold {max(1, round(hold_s * 1000))}")

    def notice(self, handle: Handle, notice: StopNotice | None) -> None:
        attempt = self._known(handle)
        if notice is None:
            with suppress(FileNotFoundError):
                os.unlink(layout.NOTICE, dir_fd=attempt.at)
            return
        self._tell(handle, layout.NOTICE, asdict(notice))

    def ask_save(self, handle: Handle, number: int) -> None:
        self._tell(handle, layout.SAVE, {"number": number})

    # ---- commands inside, and the differences of a runtime of containers

    def _tell(self, handle: Handle, name: str, said: Mapping[str, object]) -> None:
        """A file that the job's group may read."""
        attempt = self._known(handle)
        data = json.dumps({"v": 1, **said}).encode() + b"\n"
        try:
            layout.write(attempt.at, name, data, durable=False, readable_by_gid=attempt.gid)
        except OSError as error:
            raise NotDelivered(f"{handle.key}: {name} not written: {error}") from error

    def _make_groups(self, plan: LaunchPlan) -> tuple[CgroupDir, ...]:
        return self._cgroups.create(str(plan.key), limits_of(plan))

    def _more_records(self, plan: LaunchPlan, attempt: OpenAttempt) -> Sequence[str]:
        """Further facts for the shim; made in the attempt's directory first, if need be."""
        return ()

    def _engine_words(self, attempt: OpenAttempt, *, terminal: bool) -> Sequence[str]:
        """The words before a command in the rank's container; empty: it has none."""
        return ()

    def _tidy(self, at: int) -> None:
        """Delete the files of `_more_records` in an attempt's directory."""

    def _known(self, handle: Handle) -> OpenAttempt:
        attempt = self._attempts.get(handle.key)
        if attempt is None or attempt.handle != handle:
            raise UnknownAttempt(str(handle.key))
        return attempt

    def _refuse_unless_passable(self, plan: LaunchPlan) -> None:
        if plan.container is not None and self.name != "podman":
            raise LaunchRefused("this node runs no containers (jobs.runtime is not podman)")
        passable = self._state_dir.stat().st_mode & 0o001
        if plan.run_as == "submitter" and not passable:
            raise LaunchRefused(
                f"{self._state_dir} must have mode 0711: jobs pass through it", StartCause.INSTALL
            )


def limits_of(plan: LaunchPlan) -> Limits:
    return Limits(
        memory_bytes=plan.memory_bytes,
        pids_max=plan.pids_max,
        cpus=plan.cpus,
        devices=plan.only_devices,
        cores=plan.cores,
        weight=plan.weight,
    )

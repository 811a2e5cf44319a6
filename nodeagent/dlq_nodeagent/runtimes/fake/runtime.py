"""The `fake` runtime: timed jobs without processes, on a clock that its user moves.

Used by tests, and by an agent that was started with this runtime by name. It keeps the promises of
the port. Knobs in the command itself (`fake run_for=5 exit_code=3`) set a job's behaviour.
"""

from collections.abc import Callable, Iterable, Sequence

from dlq_common.clock import Clock
from dlq_nodeagent.cgroups.port import OnlyMinors, RankUsage
from dlq_nodeagent.model.launch import LaunchPlan, RankKey
from dlq_nodeagent.model.port import (
    AttemptExists,
    ExitRecord,
    Handle,
    Inside,
    JobFiles,
    LogChunk,
    RuntimeFault,
    StaleEpoch,
    Standstill,
    Started,
    StepsFile,
    StopNotice,
    UnknownAttempt,
)
from dlq_nodeagent.runtimes.fake.attempt import FakeAttempt, FakeJob


class FakeHost:
    """The machine below the runtime: it goes on when the agent (the FakeRuntime) is gone."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.attempts: dict[RankKey, FakeAttempt] = {}
        self._contact_s = clock.boottime_s()

    def renew_contact(self) -> None:
        """The agent has just been in contact with the master."""
        self.settle()
        self._contact_s = self.clock.boottime_s()
        for attempt in self.attempts.values():
            attempt.withdraw_hold_notice()

    def extended(self, key: RankKey) -> None:
        """The hold of an attempt is another one: its notice may be void."""
        attempt = self.attempts[key]
        if attempt.noticed_at_s(self._contact_s) > self.clock.boottime_s():
            attempt.withdraw_hold_notice()

    def settle(self) -> None:
        """Bring every attempt up to the present."""
        now_s = self.clock.boottime_s()
        for attempt in self.attempts.values():
            attempt.settle(now_s, self._contact_s)


class FakeStandstill(Standstill):
    """The time of a fake job stands still. It has no processes."""

    def __init__(self, attempt: FakeAttempt, now_s: Callable[[], float]) -> None:
        self._attempt, self._now_s = attempt, now_s

    def pids(self) -> frozenset[int]:
        return frozenset()

    def freeze(self) -> None:
        self._attempt.freeze(self._now_s())

    def thaw(self) -> None:
        self._attempt.thaw(self._now_s())

    def room(self) -> int | None:
        return None

    def open_only(self, rules: Sequence[OnlyMinors]) -> None:
        """It opens no device nodes."""


class FakeRuntime:
    """The agent's side. A second one over the same host is the agent after its restart."""

    name = "fake"

    def __init__(self, host: FakeHost) -> None:
        self._host = host
        self._known: dict[RankKey, FakeAttempt] = {}

    def job_files(self, key: RankKey) -> JobFiles:
        """Paths that are never made: no process will look for them."""
        at = f"/fake/{key}"
        return JobFiles(
            preempt_file=f"{at}/notice.json",
            job_dir=f"{at}/job",
            beat_file=f"{at}/job/beat",
            done_file=f"{at}/job/done",
            save_file=f"{at}/save.json",
        )

    def start(self, plan: LaunchPlan) -> Handle:
        if plan.key in self._host.attempts:
            raise AttemptExists(str(plan.key))
        clock = self._host.clock
        attempt = FakeAttempt(
            plan, FakeJob.from_argv(plan.argv), start_s=clock.boottime_s(), wall_s=clock.now_s()
        )
        self._host.attempts[plan.key] = self._known[plan.key] = attempt
        return Handle(plan.key, plan.epoch)

    def recover(self) -> list[Handle]:
        self._known = dict(self._host.attempts)
        keys = sorted(self._known, key=RankKey.numbers)
        return [Handle(key, self._known[key].plan.epoch) for key in keys]

    def started(self, handle: Handle) -> Started | None:
        return self._settled(handle).started()

    def poll(self, handle: Handle) -> ExitRecord | None:
        return self._settled(handle).record

    def exited(self, handles: Iterable[Handle]) -> list[ExitRecord]:
        found = (self.poll(handle) for handle in handles)
        return [record for record in found if record is not None]

    def ends(self) -> int | None:
        """There is no process to wait for."""
        return None

    def signal(self, handle: Handle, number: int, *, epoch: int) -> None:
        self._commanded(handle, epoch).signal(number, self._now_s())

    def catches(self, handle: Handle, number: int) -> bool | None:
        return {"yes": True, "no": False}.get(self._settled(handle).job.catches)

    def stop(
        self, handle: Handle, *, epoch: int, signal: int, grace_s: float, term_s: float
    ) -> None:
        self._commanded(handle, epoch).stop(signal, grace_s, term_s, self._now_s())

    def kill(self, handle: Handle, *, epoch: int) -> None:
        self._commanded(handle, epoch).kill(self._now_s())

    def extend_hold(self, handle: Handle, *, epoch: int, hold_s: float) -> None:
        self._commanded(handle, epoch).hold_s = hold_s
        self._host.extended(handle.key)

    def notice(self, handle: Handle, notice: StopNotice | None) -> None:
        self._settled(handle).notice = notice

    def ask_save(self, handle: Handle, number: int) -> None:
        self._settled(handle).save_number = number

    def save_number_of(self, handle: Handle) -> int:
        """The last request to save that the job would read now, 0 for none; for tests."""
        return self._settled(handle).save_number

    def notice_of(self, handle: Handle) -> StopNotice | None:
        """The notice that the job would read now; for tests (a real job reads its file)."""
        return self._settled(handle).notice

    def beat(self, handle: Handle) -> bytes | None:
        return self._settled(handle).job.beat.encode() or None

    def steps(self, handle: Handle, mark: str) -> StepsFile | None:
        written = self._settled(handle).job.steps
        content = written.replace("\\t", "\t").replace("\\n", "\n").encode()
        return StepsFile(written, content) if written not in ("", mark) else None

    def done(self, handle: Handle) -> bool:
        attempt = self._settled(handle)
        return attempt.job.done and attempt.record is not None

    def workers_done(self, handle: Handle) -> bool:
        return self._settled(handle).job.workers_done

    def worker_failures(self, handle: Handle) -> int:
        return self._settled(handle).job.worker_failures

    def failed_task(self, handle: Handle) -> str:
        attempt = self._settled(handle)
        return attempt.job.failed_task if attempt.record is not None else ""

    def usage(self, handle: Handle) -> RankUsage:
        attempt = self._settled(handle)
        lives = attempt.record is None
        return RankUsage(
            memory_bytes=None,
            peak_memory_bytes=None,
            cpu_s=attempt.cpu_s(self._now_s()) if lives else None,
            pids=1 if lives else 0,
            oom_kills=0,
        )

    def disk(self, handle: Handle) -> tuple[int, int] | None:
        self._settled(handle)
        return None

    def read_log(self, handle: Handle, offset: int, limit: int) -> LogChunk:
        attempt = self._settled(handle)
        plan, log = attempt.plan, attempt.job.log.encode()
        offset = min(max(offset, 0), len(log))
        stop = offset + max(limit, 0)
        if offset < plan.log_head_bytes:
            stop = min(stop, plan.log_head_bytes)
        else:
            offset = max(offset, plan.log_head_bytes, len(log) - plan.log_ring_bytes)
            stop = offset + max(limit, 0)
        return LogChunk(offset=offset, data=log[offset:stop], end=len(log))

    def inside(
        self, handle: Handle, command: Sequence[str], *, terminal: bool, variable: str = ""
    ) -> Inside:
        """There is no process that it could join."""
        self._settled(handle)
        raise RuntimeFault("this node runs fake jobs, which have no processes")

    def standstill(self, handle: Handle) -> Standstill:
        return FakeStandstill(self._settled(handle), self._now_s)

    def boxed_init(self, handle: Handle) -> str:
        self._settled(handle)
        return ""

    def forget(self, handle: Handle) -> None:
        if handle.key not in self._host.attempts:
            return
        if self._settled(handle).record is None:
            raise RuntimeFault(f"{handle.key} is still running")
        del self._host.attempts[handle.key], self._known[handle.key]

    def _settled(self, handle: Handle) -> FakeAttempt:
        attempt = self._known.get(handle.key)
        if attempt is None or attempt.plan.epoch != handle.epoch:
            raise UnknownAttempt(str(handle.key))
        self._host.settle()
        return attempt

    def _commanded(self, handle: Handle, epoch: int) -> FakeAttempt:
        attempt = self._settled(handle)
        if epoch < attempt.highest_epoch:
            raise StaleEpoch(f"{handle.key}: epoch {epoch} after {attempt.highest_epoch}")
        attempt.highest_epoch = epoch
        return attempt

    def _now_s(self) -> float:
        return self._host.clock.boottime_s()

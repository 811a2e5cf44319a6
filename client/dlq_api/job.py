"""A job as an object. It holds its number, and asks the master at each call.

No object of this kind owns its job. A job goes on when the object, its program or its line is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, TypeAlias, overload

from dlq.v1 import job_pb2
from dlq_api.ends import WaitTimeout, exit_code_of, failure_of, is_over, is_well
from dlq_api.line import ClusterLine
from dlq_api.output import lines_of
from dlq_api.values import Eta, JobPromise, Why, eta_of, html_table, promise_of, why_of
from dlq_api.watching import JobFuture
from dlq_cli.facts.job import job_facts
from dlq_cli.output.render import clean_line
from dlq_cli.words import shown_state
from dlq_client.forecasts import Forecasts
from dlq_client.jobs import Jobs

Until: TypeAlias = Literal["end", "running"]
ETA_WAIT_S = 20.0  # for the simulation of a busy master, as `dlq estimate` waits
_RUNNING = frozenset({"running", "profiling", "pausing"})


class Job:
    """One job of the cluster.

    Attributes ask nothing: `id`, `user`, `name` and `array_id` never change. Every property asks
    the master once. Calls raise an error of dlq (`dlq.DlqError`), and then nothing has changed.
    """

    def __init__(self, line: ClusterLine, job: job_pb2.Job) -> None:
        self._line = line
        self._jobs: Jobs = line.jobs
        self._last = job
        self.id: str = job.job_id
        self.user: str = job.user
        self.name: str = clean_line(job.name)
        self.array_id: str = job.array_task.array_id
        """The array of which it is a task; empty: none."""

    @property
    def state(self) -> str:
        """A word such as `queued`, `running` or `completed`."""
        return shown_state(self._fresh())

    @property
    def facts(self) -> dict[str, object]:
        """All fields of `dlq show --json`, with the same names."""
        return job_facts(self._fresh())

    @property
    def promise(self) -> JobPromise | None:
        """The promise about its deadlines; None: it has none."""
        return promise_of(self._fresh())

    @property
    def eta(self) -> Eta:
        """When it starts and ends, as `dlq estimate` tells it."""
        forecasts = Forecasts(self._line.connection)
        return eta_of(forecasts.of_job(self.id, wait_s=ETA_WAIT_S))

    def why(self) -> Why:
        """Every reason why it does not run; none when it runs or has ended."""
        return why_of(self._jobs.explain(self.id))

    def logs(self, *, follow: bool = False, rank: int | str = 0, attempt: int = 0) -> Iterator[str]:
        """The lines of its output so far; with `follow` all lines to its end, over all attempts.

        `rank`: as `dlq logs --rank`, without `all`. Following ends with the job, or raises. It
        goes on by itself at the next byte after a lost line or a restart of the master or agent.
        """
        line = self._line
        return lines_of(
            line.connection, self.id, line.say, follow=follow, rank=rank, attempt=attempt
        )

    def wait(self, timeout: float | None = None, *, until: Until = "end") -> Job:
        """Return when it has ended, or with `until="running"` when it runs or has ended.

        WaitTimeout after `timeout` seconds. That, and Ctrl-C, leave the job as it is. All waits of
        a process share one stream, and outlast a restart of the master.
        """
        return self.took(awaited(self.future(until=until), [self.id], timeout))

    def result(self, timeout: float | None = None) -> int:
        """Wait for its end, and return 0. Raises JobFailed (JobCancelled, JobTimedOut) otherwise:
        with the reason, the exit code, the first rank that failed and its last lines.
        """
        self.wait(timeout)
        return self.ended()

    def ended(self) -> int:
        """The result of a job that has been waited for."""
        if is_well(self._last):
            return exit_code_of(self._last)
        raise failure_of(self._jobs.get(self.id))

    def future(self, *, until: Until = "end") -> JobFuture:
        """A future of the same, for `concurrent.futures.wait`; cancelling it ends the wait only."""
        return self._line.watch.until([self.id], _holds(until))[self.id]

    def cancel(self, *, kill: bool = False) -> Job:
        """Ask for its end. It gets time to save, unless `kill`. No harm when it has ended."""
        return self.took(self._jobs.cancel(self.id, kill=kill))

    def pause(self, *, accept_loss: bool = False) -> Job:
        """Save it, free its GPUs and keep it. WorkWouldBeLost when nothing would save its work."""
        return self.took(self._jobs.pause(self.id, accept_loss=accept_loss))

    def resume(self) -> Job:
        """Queue it again after a pause."""
        return self.took(self._jobs.resume(self.id))

    def hold(self) -> Job:
        """Keep it from starting."""
        return self.took(self._jobs.hold(self.id))

    def release(self) -> Job:
        """Take the hold back."""
        return self.took(self._jobs.release(self.id))

    def _fresh(self) -> job_pb2.Job:
        self._last = self._jobs.get(self.id).job
        return self._last

    def took(self, job: job_pb2.Job) -> Job:
        """Keep a newer value of the same job; it is drawn and printed."""
        self._last = job
        return self

    def __repr__(self) -> str:
        return f"<dlq.Job {self.id} {self.name!r} {shown_state(self._last)}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and (self.id, self._line) == (other.id, other._line)

    def __hash__(self) -> int:
        return hash(self.id)

    def _repr_html_(self) -> str:
        return html_table(job_rows(self._last), f"job {self.id}")


def job_rows(job: job_pb2.Job) -> list[tuple[str, object]]:
    """A job for a table: the value that was read last."""
    promise = promise_of(job)
    return [
        ("name", clean_line(job.name)),
        ("state", shown_state(job)),
        ("queue", job.queue),
        ("GPUs", job.held_gpu_count or job.resources.gpu_count),
        ("nodes", ", ".join(job.node_ids)),
        ("waits for", job.wait_code),
        ("promise", str(promise) if promise else ""),
        ("ended by", job.end_reason),
    ]


def list_table(jobs: Iterable[Job], title: str) -> str:
    """Jobs for a notebook: the values that were read last."""
    rows = [(job.id, f"{job.name}: {shown_state(job._last)}") for job in jobs]
    return html_table(rows, title)


class JobArray(Sequence[Job]):
    """The tasks of an array, in the order of their indexes."""

    def __init__(self, line: ClusterLine, array_id: str, tasks: Sequence[job_pb2.Job]) -> None:
        self._line = line
        self._jobs: Jobs = line.jobs
        self.id = array_id
        ordered = sorted(tasks, key=lambda job: job.array_task.index)
        self._tasks = [Job(line, job) for job in ordered]

    def __len__(self) -> int:
        return len(self._tasks)

    @overload
    def __getitem__(self, index: int) -> Job: ...
    @overload
    def __getitem__(self, index: slice) -> list[Job]: ...
    def __getitem__(self, index: int | slice) -> Job | list[Job]:
        return self._tasks[index]

    def wait(self, timeout: float | None = None) -> JobArray:
        """Return when all tasks have ended. WaitTimeout after `timeout` seconds."""
        clock = self._line.clock
        until_s = None if timeout is None else clock.boottime_s() + timeout
        for task, future in zip(self, self.futures(), strict=True):
            left_s = None if until_s is None else max(0.0, until_s - clock.boottime_s())
            task.took(awaited(future, [self.id], left_s))
        return self

    def futures(self) -> list[JobFuture]:
        """A future for the end of each task, for `concurrent.futures.as_completed`. The master is
        asked once for all of them.
        """
        ids = [task.id for task in self]
        found = self._line.watch.until(ids, is_over)
        return [found[each] for each in ids]

    def result(self, timeout: float | None = None) -> list[int]:
        """Wait for all tasks; a 0 for each. Raises JobFailed for the first that ended otherwise."""
        return self.wait(timeout).ended()

    def ended(self) -> list[int]:
        """The result of an array that has been waited for."""
        return [task.ended() for task in self]

    def cancel(self, *, kill: bool = False) -> JobArray:
        """Ask for the end of all tasks that have not ended."""
        self._jobs.cancel_each(self.id, kill=kill)
        return self

    def __repr__(self) -> str:
        return f"<dlq.JobArray {self.id} of {len(self)} tasks>"

    def _repr_html_(self) -> str:
        return list_table(self, repr(self).strip("<>"))


class JobGroup(JobArray):
    """Jobs that start together and end together, in the order of their members."""

    def member(self, name: str) -> list[Job]:
        """The jobs of this member. KeyError: there is none of this name."""
        found = [job for job in self if job._last.array_task.member == name]
        if not found:
            raise KeyError(name)
        return found

    def result(self, timeout: float | None = None) -> list[int]:
        """Wait for all jobs; a 0 for each that counts. Where a member that ends all has completed,
        these are its jobs. Raises JobFailed for the first that counts and ended otherwise.
        """
        return super().result(timeout)

    def ended(self) -> list[int]:
        """The result of a group that has been waited for."""
        jobs = [*self]
        ends = {job.id: job._last.array_task.ends for job in jobs}
        well = [it for it in jobs if ends[it.id] == "all" and is_well(it._last)]
        return [job.ended() for job in well or jobs if ends[job.id] != "alone"]

    def __repr__(self) -> str:
        return f"<dlq.JobGroup {self.id} of {len(self)} jobs>"

    def _repr_html_(self) -> str:
        return html_table([(task.id, shown_state(task._last)) for task in self], f"array {self.id}")


def awaited(future: JobFuture, named: Sequence[str], timeout: float | None) -> job_pb2.Job:
    """The value of a future. A timeout, or Ctrl-C, ends the wait and says that the jobs go on."""
    names = ", ".join(named)
    try:
        return future.result(timeout)
    except KeyboardInterrupt as error:
        error.add_note(f"job {names} goes on; dlq cancel {names} ends it")
        raise
    except TimeoutError:
        if future.done():  # an error of the wait itself
            raise
        raise WaitTimeout(f"waited {timeout} s; job {names} goes on") from None
    finally:
        future.cancel()


def _holds(until: Until) -> Callable[[job_pb2.Job], bool]:
    if until == "end":
        return is_over
    return lambda job: is_over(job) or shown_state(job) in _RUNNING

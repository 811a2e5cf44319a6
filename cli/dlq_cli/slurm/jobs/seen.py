"""One job with all that is known of it, and the facts that Slurm's programs print of it.

Every program reads these; none of them decides a fact by itself. A job that is another user's
carries what `Job.redacted` names, and reads empty elsewhere.
"""

from __future__ import annotations

import grp
import math
import os
import pwd
from collections.abc import Sequence
from functools import cache

from dlq.v1 import job_pb2
from dlq.v1 import job_service_pb2 as wire
from dlq_cli.lists.slurm_states import code
from dlq_cli.lists.tasks import id_key, shown_id
from dlq_cli.slurm import job_words as words
from dlq_cli.words import has_ended
from dlq_common.text.output_patterns import NO_ARRAY_TASK, OutputNames, expand_output_pattern
from dlq_common.text.wire import from_duration, from_timestamp
from dlq_compat.job_page import size

NO_DETAIL = wire.JobDetail()
NO_VALUE = 4_294_967_294
"""Slurm's NO_VAL, which some of its texts show."""
QOS = "normal"
PRIORITY = 1
"""dlq's order is no number: 0 on hold, as there, else 1."""


class SeenJob:
    """A job, its detail where that was asked for, and the cluster's name."""

    __slots__ = ("canceller", "cluster", "code", "detail", "ended", "job", "now_s", "reason")

    def __init__(
        self, job: job_pb2.Job, cluster: str, now_s: float, detail: wire.JobDetail = NO_DETAIL
    ) -> None:
        self.job, self.detail, self.cluster, self.now_s = job, detail, cluster, now_s
        # Read many times for each line of a list.
        self.code = code(job)
        """`PD`, `R`, ..."""
        self.ended = has_ended(job)
        self.reason = words.reason(job)
        """Why it waits, or has failed: `Priority`, `None`, ..."""
        self.canceller = ""
        """A user, where that was asked for and is known."""

    @property
    def spec(self) -> job_pb2.JobSpec:
        return self.detail.spec

    # -- who and what ------------------------------------------------------------------------

    @property
    def number_key(self) -> tuple[int, int]:
        """The sort key of job numbers; a line of several tasks is last of its array."""
        return id_key(self.job) if self.job.job_id.isdecimal() else (int(self.array_id), 1 << 31)

    @property
    def raw_id(self) -> str:
        """The number that no other job has; of a line for many tasks the array's."""
        return self.job.job_id.partition("_")[0]

    @property
    def shown_id(self) -> str:
        """`17`; of a task of an array `12_4`, of a member of a group `12+0`."""
        if self.het_offset is not None:
            return f"{self.het_id}+{self.het_offset}"
        return shown_id(self.job)

    @property
    def het_offset(self) -> int | None:
        """Its place in its group, which is a heterogeneous job to Slurm's programs; None: none."""
        task = self.job.array_task
        return task.index if self.job.HasField("array_task") and task.member else None

    @property
    def het_id(self) -> str:
        """The number of its group; empty: it is in none."""
        return "" if self.het_offset is None else self.job.array_task.array_id

    @property
    def het_set(self) -> str:
        """The numbers of its group and of all jobs of it, `17-19`; empty: it is in none."""
        first = self.het_id
        return first and f"{first}-{int(first) + self.job.array_task.task_count}"

    @property
    def in_array(self) -> bool:
        return self.job.HasField("array_task") and self.het_offset is None

    @property
    def array_id(self) -> str:
        """The array's number, else the job's own."""
        return self.job.array_task.array_id if self.in_array else self.raw_id

    @property
    def task_text(self) -> str:
        """`4`; of a line that stands for many `4-99%4`; empty: no task."""
        if not self.in_array:
            return ""
        return self.shown_id.partition("_")[2].strip("[]")

    @property
    def names(self) -> frozenset[str]:
        """All words that mean it, or that mean its array or group."""
        words = {self.shown_id, self.raw_id, self.array_id, f"{self.array_id}_{self.task_text}"}
        if self.het_id:
            words |= {self.het_id, f"{self.het_id}_{self.het_offset}"}
        return frozenset(words)

    @property
    def uid(self) -> int:
        return words.uid(self.job.user)

    @property
    def gid(self) -> int:
        return _group(self.job.user)[0]

    @property
    def group(self) -> str:
        return _group(self.job.user)[1]

    @property
    def account(self) -> str:
        return self.job.team

    @property
    def qos(self) -> str:
        """dlq has none: all jobs are in Slurm's own first one."""
        return QOS

    @property
    def comment(self) -> str:
        return self.spec.labels.get("comment", "")

    @property
    def command(self) -> str:
        """The script's path where sbatch has said it; of a command its words."""
        origin = self.spec.origin
        if origin.script_path or self.detail.has_script:
            return origin.script_path
        return " ".join(self.spec.command)

    @property
    def is_batch(self) -> bool:
        return self.detail.has_script or not self.spec.command

    # -- sizes -------------------------------------------------------------------------------

    @property
    def nodes(self) -> Sequence[str]:
        """The nodes it has, or had in its last attempt."""
        held = self.job.node_ids
        if held or self.detail is NO_DETAIL or not self.detail.attempts:
            return held
        if not self.ended:
            return ()
        return [slot.node_id for slot in self.detail.attempts[-1].lease.allocation.slots]

    @property
    def node_count(self) -> int:
        return len(self.nodes) or self.job.resources.node_count or 1

    @property
    def cpus(self) -> int:
        """CPUs of all its nodes: its cores, the declared number, or else those of its tasks."""
        if self.job.resources.core_count:
            return self.job.resources.core_count
        declared = math.ceil(self.job.resources.cpu_limit)
        if declared:
            return self.node_count * declared
        return self.tasks * max(1, self.spec.tasks.cpus_per_task)

    @property
    def tasks(self) -> int:
        """Those of the whole job, else as many on each node."""
        return self.spec.tasks.task_count or self.node_count * max(1, self.spec.tasks_per_node)

    @property
    def tasks_per_node(self) -> int:
        """As asked for; one is as if nothing had been said."""
        asked = self.spec.tasks_per_node
        return asked if asked > 1 else 0

    @property
    def cpus_per_task(self) -> int:
        """As asked for. A node may give more cores than its tasks need."""
        asked = self.spec.tasks
        if asked.task_count or asked.cpus_per_task:
            return max(1, asked.cpus_per_task)
        return max(1, self.cpus // self.tasks)

    @property
    def memory_mib(self) -> int:
        """Declared for each node; 0: none."""
        return words.memory_mib(self.job)

    @property
    def gpus(self) -> int:
        return self.job.held_gpu_count or self.job.resources.gpu_count

    @property
    def gres_per_node(self) -> str:
        """`gres:gpu:8` of a job that has said how many on how many nodes; else empty."""
        resources = self.job.resources
        if not resources.HasField("node_count") or not resources.gpu_count:
            return ""
        return self._gres(math.ceil(resources.gpu_count / max(1, resources.node_count)))

    @property
    def gres_per_job(self) -> str:
        resources = self.job.resources
        if resources.HasField("node_count") or not resources.gpu_count:
            return ""
        return self._gres(resources.gpu_count)

    def _gres(self, count: int) -> str:
        resources = self.job.resources
        kind = "" if resources.or_gpu_types else resources.gpu_type
        return f"gres:gpu:{kind}:{count}" if kind else f"gres:gpu:{count}"

    @property
    def tres(self) -> str:
        """`cpu=8,mem=64G,node=1,billing=8,gres/gpu=8`."""
        parts = [f"cpu={self.cpus}"]
        if memory := self.memory_mib * self.node_count:
            parts.append(f"mem={size(memory)}")
        parts += [f"node={self.node_count}", f"billing={self.cpus}"]
        if self.gpus:
            parts.append(f"gres/gpu={self.gpus}")
        return ",".join(parts)

    # -- states and times --------------------------------------------------------------------

    @property
    def priority(self) -> int:
        return 0 if self.reason.startswith(("JobHeld", "JobHold")) else PRIORITY

    @property
    def limit_s(self) -> float | None:
        """Slurm's limits are whole minutes."""
        limit = words.limit_s(self.job)
        return None if limit is None else math.ceil(limit / 60) * 60.0

    @property
    def left_s(self) -> float | None:
        """Seconds left by its limit, of its living attempt or for the next one; None: no limit."""
        left, limit = words.left_s(self.job), words.limit_s(self.job)
        if left is None or limit is None or self.limit_s is None:
            return None
        return left + self.limit_s - limit

    @property
    def limit_minutes(self) -> int | None:
        return None if self.limit_s is None else int(self.limit_s) // 60

    @property
    def run_s(self) -> float:
        return from_duration(self.job.run_duration)

    @property
    def submit_s(self) -> float:
        return from_timestamp(self.job.submit_time)

    @property
    def eligible_s(self) -> float:
        """When it could have started for all that it had asked; 0: it cannot yet."""
        if self.job.HasField("begin_time"):
            return from_timestamp(self.job.begin_time)
        if self.code == "PD" and (self.job.dependency or self.priority == 0):
            return 0.0
        return self.submit_s

    @property
    def start_s(self) -> float:
        """The start of its last attempt; of one that waits the likely one; 0: unknown."""
        if self.code != "PD":
            return self.began_s or (self.end_s if self.ended else 0.0)
        if self.job.HasField("start_estimate"):
            return from_timestamp(self.job.start_estimate.likely_time)
        return from_timestamp(self.job.begin_time)

    @property
    def began_s(self) -> float:
        """The start of its last attempt; 0: it has not run."""
        begun = [each for each in self.detail.attempts if each.HasField("start_time")]
        return from_timestamp(begun[-1].start_time if begun else self.job.start_time)

    @property
    def end_s(self) -> float:
        """Its end; of one that runs, that of its limit; 0: unknown."""
        if self.job.HasField("end_time"):
            return from_timestamp(self.job.end_time)
        if self.limit_s is None or not self.start_s:
            return 0.0
        if self.code == "PD":
            return self.start_s + self.limit_s
        return self.now_s + max(0.0, self.left_s or 0.0)

    @property
    def exit_status(self) -> int:
        """As wait(2) has it."""
        return (self.job.exit_code << 8) + self.job.exit_signal

    @property
    def restarts(self) -> int:
        return max(0, self.job.attempt_count - 1)

    # -- files -------------------------------------------------------------------------------

    @property
    def directory(self) -> str:
        return self.spec.working_directory


@cache
def _group(user: str) -> tuple[int, str]:
    try:
        number = pwd.getpwnam(user).pw_gid
        return number, grp.getgrgid(number).gr_name
    except (KeyError, ValueError):
        return NO_VALUE, "nogroup"


_INPUT = "/dev/null"
_DEFAULT_FILES = frozenset({"slurm-%j.out", "slurm-%A_%a.out"})


def stdout_of(job: SeenJob) -> str:
    """The file of stdout as the user named it, below the working directory."""
    return _below(job, _named_file(job, ""))


def stderr_of(job: SeenJob) -> str:
    return _below(job, _named_file(job, job.spec.output.stderr_path))


def stdin_of(job: SeenJob) -> str:
    return _INPUT


def written_stdout(job: SeenJob) -> str:
    """The file of stdout, its patterns replaced by what is known of the job."""
    return _written(job, _below(job, job.spec.output.stdout_path))


def written_stderr(job: SeenJob) -> str:
    output = job.spec.output
    return _written(job, _below(job, output.stderr_path or output.stdout_path))


def _named_file(job: SeenJob, said: str) -> str:
    """As squeue has it: the name with its patterns, but the default with the job's number."""
    pattern = said or job.spec.output.stdout_path
    return f"slurm-{job.raw_id}.out" if pattern in _DEFAULT_FILES else pattern


def _below(job: SeenJob, path: str) -> str:
    return os.path.join(job.directory, path) if path else ""


def _written(job: SeenJob, path: str) -> str:
    if not path:
        return ""
    task = job.task_text if job.het_offset is None else str(job.het_offset)
    names = OutputNames(
        job_id=int(job.raw_id or 0),
        array_id=int(job.het_id or job.array_id or 0),
        array_index=int(task) if task.isdecimal() else NO_ARRAY_TASK,
        job_name=job.job.name,
        user=job.job.user,
        host=next(iter(job.nodes), ""),
    )
    return expand_output_pattern(path, names)

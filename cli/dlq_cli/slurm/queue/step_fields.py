"""The fields of `squeue -s`."""

from __future__ import annotations

from dlq_cli.slurm import job_words as words
from dlq_cli.slurm.columns import Letter, Table
from dlq_cli.slurm.jobs.steps import SeenStep
from dlq_common.text.hostlist import compress_hostlist
from dlq_compat.job_page import NOT_SET, NULL

_FIELDS: tuple[Letter[SeenStep], ...] = (
    Letter("TRES_PER_JOB", "b", ("tres-per-job",), lambda s: NULL),
    Letter("STEPID", "i", ("stepid",), lambda s: s.shown_id),
    Letter("NAME", "j", ("name", "stepname"), lambda s: s.name),
    Letter("TIME_LIMIT", "l", ("timelimit",), lambda s: "UNLIMITED"),
    Letter("USER", "u", ("username",), lambda s: s.job.job.user),
    Letter("TASKS", "A", ("numtasks",), lambda s: str(s.tasks)),
    Letter("TIME", "M", ("timeused",), lambda s: words.short(s.run_s)),
    Letter("NODELIST", "N", ("nodes",), lambda s: compress_hostlist(s.nodes)),
    Letter("PARTITION", "P", ("partition",), lambda s: s.job.job.queue),
    Letter("START_TIME", "S", ("starttime",), lambda s: words.instant_s(s.start_s, NOT_SET)),
    Letter("UID", "U", ("userid",), lambda s: str(s.job.uid)),
    Letter("STATE", "", ("stepstate",), lambda s: s.state),
    Letter("NUM_CPUS", "", ("numcpus",), lambda s: str(s.cpus)),
    Letter("CPU_FREQ", "", ("cpufreq",), lambda s: "0-0:0"),
    Letter("TRES_PER_STEP", "", ("tres-per-step",), lambda s: NULL),
    Letter("CLUSTER", "", ("cluster",), lambda s: s.job.cluster),
    Letter("CONTAINER", "", ("container",), lambda s: NULL),
    Letter("NETWORK", "", ("network",), lambda s: NULL),
    Letter("ARRAY_JOB_ID", "", ("arrayjobid",), lambda s: s.job.array_id if s.job.task_text else "0"),  # noqa: E501
    Letter("ARRAY_TASK_ID", "", ("arraytaskid",), lambda s: s.job.task_text or NOT_SET),
    Letter("JOB_ID", "", ("jobid",), lambda s: s.job.raw_id),
)  # fmt: skip
STEP_FIELDS = Table("squeue", "squeue: error: Invalid job step format specification: ", _FIELDS)

"""squeue's fields: letters of `-o`, names of `-O`, headings and texts as Slurm prints them."""

from __future__ import annotations

from collections.abc import Callable

from dlq_cli.lists.slurm_states import queue_state
from dlq_cli.slurm import job_words as words
from dlq_cli.slurm.columns import FieldTable, Letter
from dlq_cli.slurm.jobs.seen import SeenJob, stderr_of, stdin_of, stdout_of
from dlq_cli.slurm.jobs.steps import SeenStep
from dlq_common.text.hostlist import compress_hostlist
from dlq_compat.job_page import NOT_SET, NULL, size

JobText = Callable[[SeenJob], str]
_MOST_PRIORITY = 4_294_967_295.0


def always(text: str) -> JobText:
    """A thing that dlq has not, in Slurm's text for a job without it."""
    return lambda job: text


def _offset(job: SeenJob) -> str:
    return NOT_SET if job.het_offset is None else str(job.het_offset)


def _left(job: SeenJob) -> str:
    return words.short(job.left_s)


def _memory(job: SeenJob) -> str:
    return size(job.memory_mib) if job.memory_mib else "0"


def _instant(at_s: float) -> str:
    return words.instant_s(at_s, NOT_SET)


def _nodes(job: SeenJob) -> str:
    return compress_hostlist(job.nodes)


def _place(job: SeenJob) -> str:
    """Its nodes; of one that waits or has failed the reason in brackets."""
    if job.code in ("PD", "TO", "F", "OOM", "DL"):
        return f"({job.reason})"
    return _nodes(job)


def _host(job: SeenJob) -> str:
    return next(iter(job.nodes), "n/a")


def _waited(job: SeenJob) -> str:
    started = job.start_s if job.code != "PD" else 0.0
    return str(max(0, int((started or job.now_s) - job.submit_s)))


def _features(job: SeenJob) -> str:
    return "&".join(f"{key}={text}" for key, text in job.job.resources.constraint.items()) or NULL


_FIELDS: tuple[Letter[SeenJob], ...] = (
    Letter("ACCOUNT", "a", ("account",), lambda j: j.account or NULL),
    Letter("TRES_PER_NODE", "b", ("tres-per-node", "gres"), lambda j: j.gres_per_node or NOT_SET),
    Letter("MIN_CPUS", "c", ("mincpus",), lambda j: str(j.cpus_per_task), detailed=True),
    Letter("MIN_TMP_DISK", "d", ("mintmpdisk",), always("0")),
    Letter("END_TIME", "e", ("endtime",), lambda j: _instant(j.end_s), detailed=True),
    Letter("FEATURES", "f", ("feature",), _features),
    Letter("GROUP", "g", ("groupname",), lambda j: j.group),
    Letter("OVER_SUBSCRIBE", "h", ("oversubscribe",), always("OK")),
    Letter("JOBID", "i", ("jobarrayid",), lambda j: j.shown_id),
    Letter("NAME", "j", ("name",), lambda j: "(hidden)" if j.job.redacted else j.job.name),
    Letter("COMMENT", "k", ("comment",), lambda j: j.comment or NULL, detailed=True),
    Letter("TIME_LIMIT", "l", ("timelimit",), lambda j: words.short(j.limit_s)),
    Letter("MIN_MEMORY", "m", ("minmemory",), _memory),
    Letter("REQ_NODES", "n", ("reqnodes",), lambda j: compress_hostlist(j.job.resources.node_ids)),
    Letter("COMMAND", "o", ("command",), lambda j: j.command or NULL, detailed=True),
    Letter("PRIORITY", "p", ("priority",), lambda j: f"{j.priority / _MOST_PRIORITY:.14f}"),
    Letter("QOS", "q", ("qos",), lambda j: j.qos),
    Letter("REASON", "r", ("reason",), lambda j: j.reason),
    Letter("", "s", ("selectjobinfo",), always("")),
    Letter("ST", "t", ("statecompact",), lambda j: j.code),
    Letter("USER", "u", ("username",), lambda j: j.job.user),
    Letter("RESERVATION", "v", ("reservation",), always(NULL)),
    Letter("WCKEY", "w", ("wckey",), always(NULL)),
    Letter("EXC_NODES", "x", ("excnodes",), lambda j: compress_hostlist(j.job.resources.excluded_node_ids)),  # noqa: E501
    Letter("NICE", "y", ("nice",), lambda j: str(j.job.nice)),
    Letter("S:C:T", "z", ("sct",), always("*:*:*")),
    Letter("JOBID", "A", ("jobid",), lambda j: j.raw_id),
    Letter("EXEC_HOST", "B", ("batchhost",), _host, detailed=True),
    Letter("CPUS", "C", ("numcpus",), lambda j: str(j.cpus), detailed=True),
    Letter("NODES", "D", ("numnodes",), lambda j: str(j.node_count)),
    Letter("DEPENDENCY", "E", ("dependency",), lambda j: words.dependency(j.job)),
    Letter("ARRAY_JOB_ID", "F", ("arrayjobid",), lambda j: j.array_id),
    Letter("GROUP", "G", ("groupid",), lambda j: str(j.gid)),
    Letter("SOCKETS_PER_NODE", "H", ("sockets",), always("*")),
    Letter("CORES_PER_SOCKET", "I", ("cores",), always("*")),
    Letter("THREADS_PER_CORE", "J", ("threads",), always("*")),
    Letter("ARRAY_TASK_ID", "K", ("arraytaskid",), lambda j: j.task_text or NOT_SET),
    Letter("TIME_LEFT", "L", ("timeleft",), _left),
    Letter("TIME", "M", ("timeused",), lambda j: words.short(j.run_s)),
    Letter("NODELIST", "N", ("nodelist",), _nodes, detailed=True),
    Letter("CONTIGUOUS", "O", ("contiguous",), always("0")),
    Letter("PARTITION", "P", ("partition",), lambda j: j.job.queue),
    Letter("PRIORITY", "Q", ("prioritylong",), lambda j: str(j.priority)),
    Letter("NODELIST(REASON)", "R", ("reasonlist",), _place),
    Letter("START_TIME", "S", ("starttime",), lambda j: _instant(j.start_s)),
    Letter("STATE", "T", ("state",), lambda j: queue_state(j.job)),
    Letter("UID", "U", (), lambda j: str(j.uid)),
    Letter("SUBMIT_TIME", "V", ("submittime",), lambda j: _instant(j.submit_s)),
    Letter("LICENSES", "W", ("licenses",), always(NULL)),
    Letter("CORE_SPEC", "X", ("corespec",), always(NOT_SET)),
    Letter("SCHEDNODES", "Y", ("schednodes",), always(NULL)),
    Letter("WORK_DIR", "Z", ("workdir",), lambda j: j.directory or NULL, detailed=True),
    # By name alone.
    Letter("UID", "", ("userid",), lambda j: str(j.uid)),
    Letter("ACCRUE_TIME", "", ("accruetime",), lambda j: _instant(j.eligible_s)),
    Letter("ADMIN_COMMENT", "", ("admin_comment",), always(NULL)),
    Letter("ALLOC_NODES", "", ("allocnodes",), lambda j: j.spec.origin.host or NULL, detailed=True),
    Letter(
        "ALLOC_SID", "", ("allocsid",), lambda j: str(j.spec.origin.session_number), detailed=True
    ),
    Letter("ASSOC_ID", "", ("associd",), always("0")),
    Letter("BATCH_FLAG", "", ("batchflag",), lambda j: str(int(j.is_batch)), detailed=True),
    Letter("BOARDS_PER_NODE", "", ("boardspernode",), always("0")),
    Letter("BURST_BUFFER", "", ("burstbuffer",), always(NULL)),
    Letter("BURST_BUFFER_STATE", "", ("burstbufferstate",), always(NULL)),
    Letter("CLUSTER", "", ("cluster",), lambda j: j.cluster),
    Letter("CLUSTER_FEATURES", "", ("clusterfeature",), always(NULL)),
    Letter("CONTAINER", "", ("container",), lambda j: j.spec.container.image or NULL, detailed=True),  # noqa: E501
    Letter("CPUS_PER_TASK", "", ("cpus-per-task",), lambda j: str(j.cpus_per_task), detailed=True),
    Letter("CPUS_PER_TRES", "", ("cpus-per-tres",), always(NOT_SET)),
    Letter("DEADLINE", "", ("deadline",), always(NOT_SET)),
    Letter("DELAY_BOOT", "", ("delayboot",), always("0:00")),
    Letter("DERIVED_EC", "", ("derivedec",), always("0")),
    Letter("ELIGIBLE_TIME", "", ("eligibletime",), lambda j: _instant(j.eligible_s)),
    Letter("EXIT_CODE", "", ("exit_code",), lambda j: str(j.exit_status)),
    Letter("HET_JOB_ID", "", ("hetjobid",), lambda j: j.het_id or NOT_SET),
    Letter("HET_JOB_ID_SET", "", ("hetjobidset",), lambda j: j.het_set or NOT_SET),
    Letter("HET_JOB_OFFSET", "", ("hetjoboffset",), _offset),
    Letter("LAST_SCHED_EVAL", "", ("lastschedeval",), always(NOT_SET)),
    Letter("MAX_CPUS", "", ("maxcpus",), lambda j: str(j.cpus), detailed=True),
    Letter("MAX_NODES", "", ("maxnodes",), lambda j: str(j.node_count)),
    Letter("MCSLABEL", "", ("mcslabel",), always(NULL)),
    Letter("MEM_PER_TRES", "", ("mem-per-tres",), always(NOT_SET)),
    Letter("TIME_MIN", "", ("mintime",), always("0:00")),
    Letter("NETWORK", "", ("network",), always(NULL)),
    Letter("NTASKS_PER_BOARD", "", ("ntperboard",), always("0")),
    Letter("NTASKS_PER_CORE", "", ("ntpercore",), always(NOT_SET)),
    Letter("NTASKS_PER_NODE", "", ("ntpernode",), lambda j: str(j.tasks_per_node), detailed=True),
    Letter("NTASKS_PER_SOCKET", "", ("ntpersocket",), always(NOT_SET)),
    Letter("TASKS", "", ("numtasks", "numtask"), lambda j: str(j.tasks), detailed=True),
    Letter("ORIGIN", "", ("origin",), always("NA")),
    Letter("ORIGIN_RAW", "", ("originraw",), always("NA")),
    Letter("PENDING_TIME", "", ("pendingtime",), _waited),
    Letter("PREEMPT_TIME", "", ("preempttime",), always(NOT_SET)),
    Letter("PREFER", "", ("prefer",), always(NULL)),
    Letter("PROFILE", "", ("profile",), always("NotSet")),
    Letter("REBOOT", "", ("reboot",), always("0")),
    Letter("REQ_SWITCH", "", ("reqswitch",), always("0")),
    Letter(
        "REQUEUE", "", ("requeue",), lambda j: str(int(not j.spec.no_requeue)), detailed=True
    ),
    Letter("RESIZE_TIME", "", ("resizetime",), always(NOT_SET)),
    Letter("RESTART_COUNT", "", ("restartcnt",), lambda j: str(j.restarts)),
    Letter("SOCKETS_PER_BOARD", "", ("sperboard",), always("0")),
    Letter("STDERR", "", ("stderr",), stderr_of, detailed=True),
    Letter("STDIN", "", ("stdin",), stdin_of, detailed=True),
    Letter("STDOUT", "", ("stdout",), stdout_of, detailed=True),
    Letter("ACTIVE_SIBLINGS", "", ("siblingsactive",), always("NA")),
    Letter("ACTIVE_SIBLINGS_RAW", "", ("siblingsactiveraw",), always("NA")),
    Letter("VIABLE_SIBLINGS", "", ("siblingsviable",), always("NA")),
    Letter("VIALBLE_SIBLINGS_RAW", "", ("siblingsviableraw",), always("NA")),
    Letter("SYSTEM_COMMENT", "", ("system_comment",), always(NULL)),
    Letter("TRES_ALLOC", "", ("tres-alloc", "tres"), lambda j: j.tres, detailed=True),
    Letter("TRES_BIND", "", ("tres-bind",), always(NOT_SET)),
    Letter("TRES_FREQ", "", ("tres-freq",), always(NOT_SET)),
    Letter("TRES_PER_JOB", "", ("tres-per-job",), lambda j: j.gres_per_job or NOT_SET),
    Letter("TRES_PER_SOCKET", "", ("tres-per-socket",), always(NOT_SET)),
    Letter("TRES_PER_TASK", "", ("tres-per-task",), always(NOT_SET)),
    Letter("WAIT4SWITCH", "", ("wait4switch",), always("0:00")),
)  # fmt: skip
JOB_FIELDS = FieldTable("squeue", "squeue: error: Invalid job format specification: ", _FIELDS)


_STEP: tuple[Letter[SeenStep], ...] = (
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
STEP_FIELDS = FieldTable("squeue", "squeue: error: Invalid job step format specification: ", _STEP)

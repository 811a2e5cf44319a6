"""When it starts, and how long it runs."""

from __future__ import annotations

from dlq_common.job_fields.field import JobField
from dlq_common.job_fields.limits import Between, Lasts, OneOf
from dlq_common.job_fields.reading import deadlines, ordering, words
from dlq_common.job_fields.reading.words import MOST_NICE
from dlq_common.job_fields.wire import Plain, Present, Seconds
from dlq_common.text.units import DAY, LONGEST_DURATION_S, MINUTE, format_duration

TITLE = "Order and time"

MOST_STEPS = 10**15
TIME_LIMIT = JobField(
    key="time_limit",
    read=words.read_time_limit,
    flag="-t --time TIME",
    help="Time limit: 90 (minutes), 12:00:00, 1-00:00:00, 90m, 0 for none.",
    sample='"12:00:00"',
    live=True,
    wire=Seconds("time_limit_duration"),
    limit=Lasts(1, LONGEST_DURATION_S),
    label="time limit",
    text=format_duration,
    default="none",
    editable=True,
    clear="clear_time_limit",
)
TIME_LIMIT_SCOPE = JobField(
    key="time_limit_scope",
    read=words.one_of(words.TIME_LIMIT_SCOPES),
    flag="--time-limit-scope job|attempt",
    help="Scope of the time limit: the job, over all its attempts, or each attempt anew."
    "  [default: job; attempt with --compat slurm]",
    sample='"attempt"',
    comment="The limit is for each attempt anew, as in Slurm; or for the whole job: job.",
    wire=Plain[str]("time_limit_scope"),
    limit=OneOf(words.TIME_LIMIT_SCOPES),
    label="limit of each",
)
RUN_ESTIMATE = JobField(
    key="estimate",
    read=words.read_duration,
    flag="--work --estimate TIME",
    help="Expected run time in all on the requested GPUs: 40h. Deadlines are promised by it.",
    sample='"10h"',
    comment="How long you expect it to run in all. Deadlines are promised by it.",
    wire=Seconds("run_estimate_duration"),
    limit=Lasts(0.001, LONGEST_DURATION_S),
    label="work",
    text=format_duration,
)
STEPS = JobField(
    key="steps",
    read=deadlines.read_steps,
    flag="--steps N",
    help="Training steps in all, as the job's beats count them.",
    sample="100000",
    wire=Present[int]("step_count"),
    limit=Between(1, MOST_STEPS),
    label="steps",
)
BEGIN = JobField[object](
    key="begin",
    read=ordering.read_begin,
    flag="-b --begin TIME",
    help="Start not before 18:00, 2026-12-01T08:00 (your zone), 2026-12-01T08:00Z or now+2hours.",
    sample='"2026-12-01T08:00"',
    comment="Not before this; in your zone. Or 18:00, now+2hours.",
)
DEPENDS_ON = JobField[object](
    key="depends_on",
    read=ordering.read_dependency,
    flag="-d --dependency RELATION:JOB[:JOB]",
    help="Wait for other jobs: after (started; after:12+5: five minutes ago), afterok, afternotok, "
    "afterany (ended), aftercorr (task by task); `,` for all, `?` for any. singleton: one job of "
    "this name at a time.",
    sample='"afterok:12,afterany:14"',
    comment="Not before these; `?` for any of them.",
)
CANCEL_IF_NEVER = JobField[object](
    key="cancel_if_never",
    read=words.read_bool,
    flag="--kill-on-invalid-dep YES|NO",
    help="Cancel it when its dependency can never come true, instead of holding it.  [default: no]",
    sample="true",
    comment="Cancel it when that can never come true. Default: hold it.",
)
DISCONNECT_HOLD = JobField(
    key="disconnect_hold",
    read=words.read_duration,
    sample='"2h"',
    comment="How long it runs on while the master is silent.",
    wire=Seconds("disconnect_hold_duration"),
    limit=Lasts(MINUTE, 7 * DAY),
)
ARRAY = JobField[object](
    key="array",
    read=ordering.read_array,
    flag="-a --array INDEXES",
    help="One job for each index: 0-15, 1,3,7, 0-100:10; 0-99%4 lets at most 4 run at a time. Each"
    " task finds its own in DLQ_ARRAY_TASK_ID.",
    sample='"0-99%4"',
    comment="One job for each index, at most 4 at a time: DLQ_ARRAY_TASK_ID.",
)
NICE = JobField(
    key="nice",
    read=words.read_nice,
    flag="--nice N",
    help="Behind all other jobs of its queue, 1 to 100; operators also before them, to -100.",
    sample="10",
    comment="Behind all other jobs of its queue: 1 to 100.",
    wire=Plain[int]("nice"),
    limit=Between(-MOST_NICE, MOST_NICE),
    label="nice",
    text=lambda nice: str(nice or ""),
    editable=True,
)
NO_REQUEUE = JobField[bool](
    key="no_requeue",
    read=words.read_bool,
    flag="--no-requeue",
    help="Never run it a second time: an attempt that is preempted, or lost with its node, ends "
    "the job.",
    sample="true",
    comment="Never a second time: preempted, or lost with its node, it has failed.",
    wire=Plain[bool]("no_requeue"),
    label="requeue",
    text=lambda never: "never" if never else "",
)
HOLD = JobField(
    key="hold",
    read=words.read_bool,
    flag="-H --hold",
    help="Submit it on hold; `dlq release` lets it start.",
    sample="true",
    wire=Plain[bool]("hold"),
    label="hold",
    text=lambda held: "yes" if held else "",
)

"""How it is asked to save, and how it starts again."""

from __future__ import annotations

from dlq_common.job_fields.field import JobField
from dlq_common.job_fields.limits import Lasts, OneOf, Passes, RestartsUpTo, Several
from dlq_common.job_fields.reading import words
from dlq_common.job_fields.reading.words import SAVE_SIGNALS, SIGNALS_TO
from dlq_common.job_fields.wire import FractionalSeconds, Many, Plain, RestartsByCause, Seconds
from dlq_common.text.names import check_absolute_path, check_relative_path
from dlq_common.text.units import HOUR

TITLE = "Checkpoints and restarts"

MOST_EXIT_CODES = 32
SIGNAL = JobField[object](
    key="preempt.signal",
    read=words.read_signal,
    flag="--signal SIG[@S]",
    help="Signal that asks the job to save: TERM, USR1, USR2 or INT; with @S it comes S seconds "
    "before the time limit as a warning, and at least S before any kill. It goes to the main "
    "process.  [default: TERM]",
    sample='"USR1@120"',
    comment="Asks the main process to save: TERM, USR1, USR2, INT; @S seconds ahead.",
)
GRACE = JobField(
    key="preempt.grace",
    read=words.read_grace,
    flag="--grace TIME|auto",
    help="Time from that signal to the kill.  [default: auto, learned from saves]",
    sample='"auto"',
    wire=Seconds("preempt.grace_duration"),
    limit=Lasts(1, HOUR),
)
EXIT_CODES = JobField(
    key="retry.exit_codes",
    read=words.read_exit_codes,
    flag="--requeue-exit N[,N]",
    help="Exit codes that mean `saved, start me again`, besides 99.",
    sample="[99]",
    wire=Many[int]("preempt.requeue_exit_codes"),
    limit=Several(MOST_EXIT_CODES, 1, 255),
)
MAX_RESTARTS = JobField(
    key="retry.max_restarts",
    read=words.read_restarts,
    flag="--max-restarts [CAUSE=]N",
    help="Start it again after N failures of its own, or after N ends by a cause: error, memory,"
    " node, gpu, preemption, start. May be repeated.  [default: 0]",
    repeat=True,
    sample="3",
    comment='After failures of its own; or by cause: [3, "node=5"].',
    wire=RestartsByCause("retry.max_restart_count"),
    limit=RestartsUpTo(100),
    label="restarts",
    default="0",
)
CHECKPOINT_DIRECTORY = JobField(
    key="checkpoint.dir",
    read=words.read_path,
    flag="--checkpoint-dir DIR",
    help="Directory of the checkpoints.  [default: the cluster's place for them]",
    sample='"/shared/ckpt/mnist"',
    wire=Plain[str]("checkpoint.directory"),
    limit=Passes(check_absolute_path, "checkpoint directory"),
    label="checkpoints",
    default="the cluster's place",
)
CHECKPOINT_MARKER = JobField(
    key="checkpoint.marker",
    read=words.read_marker,
    flag="--checkpoint-marker GLOB",
    help="File below --checkpoint-dir that an unmodified script leaves when a checkpoint is whole.",
    sample='"step-*/done"',
    comment="The file that makes a checkpoint whole; with dir.",
    wire=Plain[str]("checkpoint.marker"),
    limit=Passes(check_relative_path, "checkpoint marker"),
    label="marker",
    launch="checkpoint_marker",
)
CHECKPOINT_SETTLE = JobField(
    key="checkpoint.settle",
    read=words.read_settle,
    flag="--checkpoint-settle TIME",
    help="How long that file must stay unchanged to count, such as 10s.",
    sample='"10s"',
    comment="... once it has not changed for this long.",
    wire=FractionalSeconds("checkpoint.settle_duration"),
    limit=Lasts(0, HOUR),
)
RESUME_FROM = JobField(
    key="checkpoint.resume_from",
    read=words.read_path,
    flag="--resume-from PATH",
    help="Begin from this checkpoint of another job; with --checkpoint-dir.",
    sample='"/shared/ckpt/mnist/17/2/step-000400"',
    comment="Of another job: begin from it, as long as there is no own one; with dir.",
    wire=Plain[str]("checkpoint.resume_from"),
    limit=Passes(check_absolute_path, "checkpoint to begin from"),
    label="begins from",
)
PRESET = JobField[object](
    key="checkpoint.preset",
    read=words.one_of(words.PRESETS),
    flag="--checkpoint-preset NAME",
    help="How a framework saves and resumes: sigterm, torchrun, hf, lightning or submitit.",
    sample='"hf"',
    comment="A framework's habits: sigterm, torchrun, hf, lightning, submitit; with dir.",
)
SAVE_SIGNAL = JobField(
    key="checkpoint.save_signal",
    read=words.read_save_signal,
    flag="--save-signal SIG",
    help="Signal on which the script saves and goes on, for `dlq checkpoint`: USR1, USR2, INT.",
    sample='"USR2"',
    comment="On it the script saves and goes on: `dlq checkpoint`.",
    wire=Plain[str]("checkpoint.save_signal"),
    limit=OneOf(SAVE_SIGNALS),
    label="save signal",
    launch="save_signal",
)
SIGNAL_TO = JobField(
    key="preempt.signal_to",
    read=words.one_of(words.SIGNALS_TO),
    flag="--signal-to main|ranks|script",
    help="Receiver of the signal: the main process, the ranks that torchrun has started, or the"
    " batch script and not its steps (with --compat slurm).  [default: main]",
    sample='"ranks"',
    comment="Signals are for what torchrun has started, not for the main process.",
    wire=Plain[str]("preempt.signal_to"),
    limit=OneOf(SIGNALS_TO),
    launch="signal_to",
)
EXIT_ZERO_COMPLETES = JobField(
    key="preempt.exit_zero_completes",
    read=words.read_bool,
    sample="true",
    comment="Exit code 0 while asked to save means finished.",
    wire=Plain[bool]("preempt.exit_zero_completes"),
)
ON_EXIT_ZERO = JobField(
    key="on_exit0_while_stopping",
    read=words.one_of(words.EXIT_ZERO_WORDS),
    flag="--on-exit0-while-stopping completed|requeued",
    help="Meaning of exit code 0 while the job is told to leave: it has finished, or it runs again."
    "  [default: by the evidence]",
    sample='"completed"',
    comment="Exit 0 while it is told to leave: completed or requeued. Default: by the evidence.",
    wire=Plain[str]("on_exit0_while_stopping"),
    limit=OneOf(words.EXIT_ZERO_WORDS),
    label="exit 0 in a stop",
)
COMPLETION_EXIT_CODES = JobField(
    key="completion_exit_codes",
    read=words.read_exit_codes,
    flag="--completion-exit N[,N]",
    help="Exit codes that mean `finished`, at any time, also while the job is told to leave.",
    sample="[85]",
    wire=Many[int]("completion_exit_codes"),
    limit=Several(MOST_EXIT_CODES, 1, 255),
)

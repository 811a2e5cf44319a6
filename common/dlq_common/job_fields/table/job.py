"""The command of a job, its account and its files."""

from __future__ import annotations

from dlq_common.job_fields.field import JobField
from dlq_common.job_fields.limits import Between, Passes
from dlq_common.job_fields.reading import containers, program, words
from dlq_common.job_fields.wire import Plain, Present
from dlq_common.text.names import check_absolute_path, check_job_name, check_word

TITLE = "Job"
NAME = JobField(
    key="name",
    read=words.read_name,
    flag="-J --job-name --name NAME",
    help="A name for people.  [default: the script's or the program's]",
    sample='"mnist"',
    live=True,
    wire=Plain[str]("name"),
    limit=Passes(check_job_name),
    label="name",
    editable=True,
    launch="job_name",
)
COMMAND = JobField[object](
    key="command",
    read=program.read_command,
    sample='"python train.py --lr 0.1"',
    comment="Split into words, run by no shell. Or `run`.",
    live=True,
)
RUN = JobField[object](
    key="run",
    read=program.read_run,
    sample='"python prepare.py && python train.py"',
    comment="Instead of command: lines for /bin/sh, or for its #! line.",
)
QUEUE = JobField(
    key="queue",
    read=words.word("queue name"),
    flag="-p --queue --partition NAME",
    help="The queue.  [default: the cluster's]",
    sample='"default"',
    wire=Plain[str]("queue"),
    limit=Passes(check_word, "queue"),
    label="queue",
    default="the cluster's",
    editable=True,
    launch="queue",
)
TEAM = JobField(
    key="team",
    read=words.word("team"),
    flag="--team NAME",
    help="The team to which its GPUs are counted.  [default: your default team]",
    sample='"vision"',
    wire=Plain[str]("team"),
    limit=Passes(check_word, "team"),
    editable=True,
)
LABELS = JobField[object](
    key="labels",
    read=program.read_label_table,
    flag="--label K=V",
    help="A label for people and filters. May be repeated.",
    repeat=True,
    sample='{ team = "vision" }',
    comment="For people and filters.",
)
WORKDIR = JobField(
    key="workdir",
    read=words.read_path,
    flag="-D --chdir --workdir DIR",
    help="Working directory on every node.  [default: the present one]",
    sample='"/shared/mnist"',
    wire=Plain[str]("working_directory"),
    limit=Passes(check_absolute_path, "working directory"),
    launch="working_directory",
)
UMASK = JobField(
    key="umask",
    read=words.read_umask,
    flag="--umask MODE",
    help="Permission bits that its new files lack, such as 027.  [default: those of your shell]",
    sample='"027"',
    wire=Present[int]("umask"),
    limit=Between(0, words.MOST_UMASK),
    label="umask",
    text=lambda mask: "" if mask == words.USUAL_UMASK else f"{mask:04o}",
    to_agent=True,
)
ENV = JobField[object](
    key="env",
    read=program.read_env_table,
    flag="--env K[=V]",
    help="Set a variable; without a value take it from your shell. May be repeated.",
    repeat=True,
    sample='{ DATA = "/shared/data" }',
    comment='Its variables; ["HOME"] takes one from your shell.',
)
EXPORT = JobField[object](
    key="export",
    read=program.read_export,
    flag="--export WHAT",
    help="ALL of your shell's variables, NONE, or a list A,B=2.  [default: NONE]",
    sample='"NONE"',
)
SECRETS = JobField[object](
    key="secrets",
    read=containers.read_secrets,
    flag="--secret NAME",
    help="Secret of the nodes that the job finds in /run/secrets/NAME. May be repeated.",
    repeat=True,
    sample='["wandb"]',
    comment="The nodes' secrets; with image, in /run/secrets.",
)

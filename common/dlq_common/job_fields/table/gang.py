"""The processes of a job on its nodes."""

from __future__ import annotations

from dlq_common.job_fields.field import JobField
from dlq_common.job_fields.limits import Between, OneOf
from dlq_common.job_fields.reading import words
from dlq_common.job_fields.reading.words import LAUNCHES, MOST_TASKS, MOST_TASKS_OF_A_NODE
from dlq_common.job_fields.wire import Plain, Present, YesNo

TITLE = "Processes of a gang"
LAUNCH = JobField(
    key="launch",
    read=words.one_of(words.LAUNCHES),
    flag="--launch per-node|per-gpu",
    help="One process of the command on each node, for torchrun and the like, or one for each GPU,"
    " with RANK, LOCAL_RANK and WORLD_SIZE.  [default: per-node]",
    sample='"per-gpu"',
    comment="One process for each GPU. Default: per-node, for torchrun.",
    wire=Plain[str]("launch"),
    limit=OneOf(LAUNCHES),
    label="launch",
    launch="launch_mode",
)
WORKERS = JobField(
    key="roles.workers",
    read=words.at_least_one("worker", words.MOST_ROLES),
    flag="--workers N",
    help="Run the command as N workers, with one GPU each by default. TF_CONFIG and DMLC_* give "
    "the role.",
    sample="8",
    comment="The number of workers of the command, told by TF_CONFIG and DMLC_*.",
    wire=Plain[int]("roles.worker_count"),
    launch="worker_count",
)
SERVERS = JobField(
    key="roles.ps",
    read=words.up_to(words.MOST_ROLES),
    flag="--ps N",
    help="Also run N parameter servers, on the workers' nodes and without GPUs.",
    sample="2",
    comment="And as parameter servers, without GPUs; with workers.",
    wire=Plain[int]("roles.ps_count"),
    launch="ps_count",
)
COMPAT = JobField(
    key="compat",
    read=words.read_compat,
    flag="--compat slurm|none",
    help="Give it Slurm's variables and stand-ins for srun, scontrol and the like, and read its "
    "#SBATCH lines.  [default: none]",
    sample='"slurm"',
    comment="Slurm's variables, and stand-ins for srun, scontrol and the like.",
    wire=Plain[str]("compat"),
    limit=OneOf(("slurm",)),
    launch="compat",
)
TASKS_PER_NODE = JobField(
    key="tasks_per_node",
    read=words.at_least_one("task", words.MOST_TASKS_OF_A_NODE),
    flag="--ntasks-per-node N",
    help="Tasks that srun starts on each node, with --compat.  [default: one for each GPU]",
    sample="4",
    comment="Of srun, with compat. Default: one for each GPU.",
    wire=Present[int]("tasks_per_node"),
    limit=Between(1, MOST_TASKS_OF_A_NODE),
    launch="tasks_per_node",
)
TASKS = JobField(
    key="tasks",
    read=words.at_least_one("task", MOST_TASKS),
    flag="--ntasks N",
    help="Tasks of all nodes together that srun starts, with --compat.  [default: those of each "
    "node]",
    sample="16",
    comment="Of srun, on all nodes together, with compat.",
    wire=Plain[int]("tasks.task_count"),
    limit=Between(1, MOST_TASKS),
    to_agent=True,
)
CPUS_PER_TASK = JobField(
    key="cpus_per_task",
    read=words.at_least_one("core", words.MOST_CORES),
    sample="4",
    comment="Cores of each task, as srun and SLURM_CPUS_PER_TASK tell it; with compat.",
    wire=Plain[int]("tasks.cpus_per_task"),
    limit=Between(1, words.MOST_CORES),
    to_agent=True,
)
GPUS_PER_TASK = JobField(
    key="gpus_per_task",
    read=words.at_least_one("GPU", MOST_TASKS_OF_A_NODE),
    sample="1",
    comment="GPUs that each task of srun sees alone, with compat. Default: all of its node.",
    wire=Plain[int]("tasks.gpus_per_task"),
    limit=Between(1, MOST_TASKS_OF_A_NODE),
    to_agent=True,
)
TASKS_IMPLIED = JobField[bool](
    key="tasks_implied",
    read=words.read_bool,
    sample="true",
    comment="They follow from the nodes: no SLURM_NTASKS, as in Slurm without -n; with compat.",
    wire=Plain[bool]("tasks.implied"),
    to_agent=True,
)
PROFILE = JobField(
    key="profile",
    read=words.read_bool,
    flag="--profile",
    help="Record its network traffic at its start, to learn its sizes and times.  [default: at the"
    " first start of a distributed job]",
    sample="true",
    comment="Record its traffic; false: never. Default: its first distributed start.",
    wire=YesNo("profile"),
    label="profile",
    text=lambda records: "yes" if records else "no",
)
RUNTIME = JobField(
    key="runtime",
    read=words.word("runtime"),
    sample='"process"',
    comment="The launcher that starts it. Default: the cluster's.",
    wire=Plain[str]("runtime"),
)

"""How many GPUs of which nodes."""

from __future__ import annotations

from dlq_common.job_fields.field import JobField
from dlq_common.job_fields.limits import AtLeast, Between
from dlq_common.job_fields.reading import choice, words
from dlq_common.job_fields.wire import Many, Plain, Present
from dlq_common.text.units import approximate_size

TITLE = "GPUs and nodes"


def _size_on_each_node(size: int) -> str:
    return f"{approximate_size(size)} ({size} bytes) on each node"


GPUS_TOTAL = JobField[object](
    key="resources.gpus_total",
    read=words.read_gpus,
    flag="-G --gpus [TYPE:]N",
    help="GPUs of the whole job, such as 8 or h100-80gb:8; 0: a job without GPUs, on the cores of "
    "--cpus.  [default: 1]",
    sample="8",
    live=True,
)
GPUS = JobField[object](
    key="resources.gpus",
    read=words.read_gpus,
    flag="--gpus-per-node [TYPE:]N",
    help="GPUs of each node; without -N the job has one node.",
    sample='"h100:8"',
    comment="Of each node; `8` takes any type. Or gpus_total.",
)
CORES = JobField[object](
    key="resources.cores",
    read=words.read_cores,
    flag="--cores N",
    help="A job without GPUs: CPU cores of the whole job, which no other job uses meanwhile.",
    sample="16",
    comment="A job without GPUs: cores of the whole job. Or gpus = 0, with cpus.",
)
NODES = JobField[object](
    key="nodes",
    read=words.read_nodes,
    flag="-N --nodes N",
    help="Nodes of the gang.  [default: any that hold the GPUs]",
    sample="2",
    comment="The command runs once on each. Default: any that hold the GPUs.",
)
GPU_TYPE = JobField[object](
    key="resources.gpu_type",
    read=words.read_gpu_types,
    flag="--gpu-type TYPE[,TYPE]",
    help="Only this type of GPU, as `dlq nodes` shows it. Of several types the first with enough "
    "is used.",
    sample='["h100", "a100"]',
    comment="Any one of these, as `dlq nodes` shows it, or how that begins.",
)
GPU_MEMORY = JobField(
    key="resources.gpu_memory",
    read=words.read_memory,
    flag="--gpu-mem SIZE",
    help="Only GPUs with at least this memory each: 80GB (10^9; an 80 GB card has a little less "
    "than 80 GiB).",
    sample='"80GB"',
    comment="Of each GPU, at least; 10^9.",
    wire=Present[int]("resources.gpu_memory_bytes"),
    limit=AtLeast(1 << 20, "1 MiB"),
)
HALVE_BATCH = JobField(
    key="resources.halve_batch",
    read=words.read_bool,
    flag="--halve-batch",
    help="GPUs with half of --gpu-mem will do too: DLQ_BATCH_SCALE tells the job to halve its "
    "batch there.",
    sample="true",
    comment="GPUs with half of gpu_memory too, by half the batch.",
    wire=Plain[bool]("resources.halves_batch"),
)
MIXED_GPUS = JobField(
    key="resources.mixed_gpus",
    read=words.read_bool,
    flag="--mixed-gpus",
    help="GPUs of several types at once are fine where no one type has enough; the job gets free "
    "ones only.",
    sample="true",
    comment="On GPUs of several types at once, where they are free.",
    wire=Plain[bool]("resources.mixed_gpu_types"),
    label="gpu types",
    text=lambda mixed: "several at once" if mixed else "",
)
CPUS = JobField(
    key="resources.cpus",
    read=words.read_cpus,
    flag="--cpus N",
    help="CPU limit on each node, in cores; with --gpus 0 its cores there.",
    sample="32",
    wire=Present[float]("resources.cpu_limit"),
    limit=Between(0.01, 100_000, "cores"),
    label="cpus",
    text="{:g} on each node".format,
    launch="cpu_limit",
)
MEMORY = JobField(
    key="resources.memory",
    read=words.read_memory,
    flag="--mem SIZE",
    help="Memory limit on each node: 400GiB or 400G (2^30), 400GB (10^9).",
    sample='"400GiB"',
    comment="Limit on each node. GB is 10^9, GiB (or G) 2^30.",
    wire=Present[int]("resources.memory_limit_bytes"),
    limit=AtLeast(1 << 20, "1 MiB"),
    label="memory",
    text=_size_on_each_node,
    launch="memory_limit_bytes",
)
MEMORY_PER_CORE = JobField(
    key="resources.memory_per_core",
    read=words.read_memory,
    flag="--mem-per-core SIZE",
    help="For a job without GPUs: memory for each core. It gets more cores where one brings less.",
    sample='"4GiB"',
    comment="Without GPUs: for each of its cores.",
    wire=Present[int]("resources.core_memory_bytes"),
    limit=AtLeast(1 << 20, "1 MiB"),
    label="memory per core",
    text=approximate_size,
)
CONSTRAINT = JobField[object](
    key="resources.constraint",
    read=choice.read_constraint,
    flag="-C --constraint K=V[,K=V]",
    help="Only nodes with all of these labels (`dlq nodes -l`).",
    sample='{ rack = "r1" }',
)
NODELIST = JobField(
    key="resources.nodelist",
    read=choice.read_nodes,
    flag="-w --nodelist NODES",
    help="Only these nodes: gpu01 or gpu[01-04].",
    sample='"gpu[01-04]"',
    wire=Many[str]("resources.node_ids"),
)
EXCLUDE = JobField(
    key="resources.exclude",
    read=choice.read_nodes,
    flag="-x --exclude NODES",
    help="Not these nodes.",
    sample='"gpu07"',
    wire=Many[str]("resources.excluded_node_ids"),
)

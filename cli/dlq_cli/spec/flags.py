"""The flags of `dlq submit` that describe the job: the command line and #DLQ lines share them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dlq_cli.spec.fields import put
from dlq_cli.spec.values.given import Given, Layer, wrong
from dlq_cli.spec.values.program import read_assignment, read_label


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One flag, the key of the spec that it sets, and its help."""

    names: tuple[str, ...]
    key: str
    help: str
    metavar: str = ""  # empty: a switch
    repeat: bool = False

    @property
    def parameter(self) -> str:
        """A Python name, unique among flags."""
        return self.names[-1 if self.names[0].startswith("--") else 1].strip("-").replace("-", "_")

    @property
    def shown(self) -> str:
        """As errors name it: all its long names, for nobody knows which was written."""
        return "/".join(name for name in self.names if name.startswith("--"))


FLAGS: tuple[Flag, ...] = (
    Flag(
        names=("-J", "--job-name", "--name"),
        key="name",
        metavar="NAME",
        help="A name for people.  [default: the script's or the program's]",
    ),
    Flag(
        names=("-p", "--queue", "--partition"),
        key="queue",
        metavar="NAME",
        help="The queue.  [default: the cluster's]",
    ),
    Flag(
        names=("--team",),
        key="team",
        metavar="NAME",
        help="The team to which its GPUs are counted.  [default: your default team]",
    ),
    Flag(
        names=("-G", "--gpus"),
        key="resources.gpus_total",
        metavar="[TYPE:]N",
        help="GPUs of the whole job, such as 8 or h100-80gb:8.  [default: 1]",
    ),
    Flag(
        names=("--gpus-per-node",),
        key="resources.gpus",
        metavar="[TYPE:]N",
        help="GPUs of each node; without -N the job has one node.",
    ),
    Flag(
        names=("-N", "--nodes"),
        key="nodes",
        metavar="N",
        help="Nodes of the gang.  [default: any that hold the GPUs]",
    ),
    Flag(
        names=("--elastic",),
        key="elastic.gpus",
        metavar="MIN:MAX[:STEP]",
        help="It runs on any number of GPUs from 2 to 8 with 2:8, and is given others while it "
        "runs; the "
        "first is its base.",
    ),
    Flag(
        names=("--elastic-sizes",),
        key="elastic.sizes",
        metavar="N,N,...",
        help="The same with a list: 2,4,8.",
    ),
    Flag(
        names=("--elastic-mode",),
        key="elastic.resize",
        metavar="restart|live",
        help="How it is given others: it saves and starts again; live, torchrun takes up whole "
        "nodes and lets "
        "them go while it runs.  [default: restart]",
    ),
    Flag(
        names=("--gpu-type",),
        key="resources.gpu_type",
        metavar="TYPE[,TYPE]",
        help="Only this type of GPU, as `dlq nodes` shows it; of several any one, the first that "
        "has enough.",
    ),
    Flag(
        names=("-C", "--constraint"),
        key="resources.constraint",
        metavar="K=V[,K=V]",
        help="Only nodes with all of these labels (`dlq nodes -l`).",
    ),
    Flag(
        names=("-w", "--nodelist"),
        key="resources.nodelist",
        metavar="NODES",
        help="Only these nodes: gpu01 or gpu[01-04].",
    ),
    Flag(
        names=("-x", "--exclude"),
        key="resources.exclude",
        metavar="NODES",
        help="Not these nodes.",
    ),
    Flag(
        names=("--cpus",),
        key="resources.cpus",
        metavar="N",
        help="CPU limit on each node, in cores.",
    ),
    Flag(
        names=("--mem",),
        key="resources.memory",
        metavar="SIZE",
        help="Memory limit on each node: 400GiB or 400G (2^30), 400GB (10^9).",
    ),
    Flag(
        names=("--gpu-mem",),
        key="resources.gpu_memory",
        metavar="SIZE",
        help="Only GPUs with so much memory each: 80GB (10^9; an 80 GB card has a little less "
        "than 80 GiB).",
    ),
    Flag(
        names=("--halve-batch",),
        key="resources.halve_batch",
        help="GPUs with half of --gpu-mem will do too: DLQ_BATCH_SCALE tells the job to halve its "
        "batch there.",
    ),
    Flag(
        names=("--mixed-gpus",),
        key="resources.mixed_gpus",
        help="GPUs of several types at once will do, where no one type has enough: those that "
        "nobody else took.",
    ),
    Flag(
        names=("-t", "--time"),
        key="time_limit",
        metavar="TIME",
        help="Time limit: 90 (minutes), 12:00:00, 1-00:00:00, 90m, 0 for none.",
    ),
    Flag(
        names=("--work", "--estimate"),
        key="estimate",
        metavar="TIME",
        help="How long you expect it to run in all on what it asks for: 40h. Deadlines are "
        "promised by it.",
    ),
    Flag(
        names=("--deadline",),
        key="deadline",
        metavar="TIME|DATE",
        help="To be done within 8h of its submission, by 18:00, or by 2026-12-01T08:00.",
    ),
    Flag(
        names=("--soft-deadline",),
        key="soft_deadline",
        metavar="T:100,+10%:80,...",
        help="Several deadlines, and what an end by each is worth (100 to 1, never rising).",
    ),
    Flag(
        names=("--on-miss",),
        key="on_miss",
        metavar="continue|cancel",
        help="When the last deadline cannot be kept any more.  [default: continue]",
    ),
    Flag(
        names=("--due",),
        key="due",
        metavar="TIME|DATE",
        help="When it is to be done, with --weight: no promise, but machines may be rented for it.",
    ),
    Flag(
        names=("--weight",),
        key="weight",
        metavar="PRICE",
        help="What each hour after --due costs; machines are rented for it where they cost less.",
    ),
    Flag(
        names=("--steps",),
        key="steps",
        metavar="N",
        help="Training steps in all, as the job's beats count them.",
    ),
    Flag(
        names=("-D", "--chdir", "--workdir"),
        key="workdir",
        metavar="DIR",
        help="Working directory on every node.  [default: the present one]",
    ),
    Flag(
        names=("--env",),
        key="env",
        metavar="K[=V]",
        repeat=True,
        help="Set a variable; without a value take it from your shell. May be repeated.",
    ),
    Flag(
        names=("--export",),
        key="export",
        metavar="WHAT",
        help="ALL of your shell's variables, NONE, or a list A,B=2.  [default: NONE]",
    ),
    Flag(
        names=("--signal",),
        key="preempt.signal",
        metavar="SIG[@S]",
        help="Signal that asks the job to save: TERM, USR1, USR2 or INT; with @S it "
        "comes S seconds before the time limit as a warning, and at least S before any kill. It "
        "goes "
        "to the main process.  [default: TERM]",
    ),
    Flag(
        names=("--grace",),
        key="preempt.grace",
        metavar="TIME|auto",
        help="Time from that signal to the kill.  [default: auto, learned from saves]",
    ),
    Flag(
        names=("--requeue-exit",),
        key="retry.exit_codes",
        metavar="N[,N]",
        help="Exit codes that mean `saved, start me again`, besides 99.",
    ),
    Flag(
        names=("--max-restarts",),
        key="retry.max_restarts",
        metavar="N",
        help="Start it again after N failures of its own.  [default: 0]",
    ),
    Flag(
        names=("--checkpoint-dir",),
        key="checkpoint.dir",
        metavar="DIR",
        help="Where checkpoints are.  [default: the cluster's place for them]",
    ),
    Flag(
        names=("--checkpoint-marker",),
        key="checkpoint.marker",
        metavar="GLOB",
        help="File below --checkpoint-dir that an unmodified script leaves when a checkpoint is "
        "whole.",
    ),
    Flag(
        names=("--checkpoint-settle",),
        key="checkpoint.settle",
        metavar="TIME",
        help="How long that file must stay unchanged to count, such as 10s.",
    ),
    Flag(
        names=("--checkpoint-preset",),
        key="checkpoint.preset",
        metavar="NAME",
        help="How a framework saves and resumes: sigterm, torchrun, hf, lightning or submitit.",
    ),
    Flag(
        names=("--compat",),
        key="compat",
        metavar="slurm|none",
        help="Give it Slurm's variables and stand-ins for srun, scontrol and the like, and read "
        "its #SBATCH lines.  [default: none]",
    ),
    Flag(
        names=("--ntasks-per-node",),
        key="tasks_per_node",
        metavar="N",
        help="Tasks that srun starts on each node, with --compat.  [default: one for each GPU]",
    ),
    Flag(
        names=("--launch",),
        key="launch",
        metavar="per-node|per-gpu",
        help="One process of the command on each node, for torchrun and the like, or one for each "
        "GPU, with RANK, LOCAL_RANK and WORLD_SIZE.  [default: per-node]",
    ),
    Flag(
        names=("--workers",),
        key="roles.workers",
        metavar="N",
        help="Run the command as N workers, told their role by TF_CONFIG and DMLC_*, with one GPU "
        "each unless GPUs are asked for.",
    ),
    Flag(
        names=("--ps",),
        key="roles.ps",
        metavar="N",
        help="And as N parameter servers, on the workers' nodes and without GPUs.",
    ),
    Flag(
        names=("--image",),
        key="image",
        metavar="IMAGE",
        help="Run it in a container: REGISTRY/PATH:TAG or REGISTRY/PATH@sha256:DIGEST.",
    ),
    Flag(
        names=("--mount",),
        key="mounts",
        metavar="SRC:DST[:ro]",
        repeat=True,
        help="Show the job a directory or file of the nodes in its container. May be repeated.",
    ),
    Flag(
        names=("--shm-size",),
        key="resources.shm_size",
        metavar="SIZE",
        help="Size of the container's /dev/shm.  [default: half of its memory]",
    ),
    Flag(
        names=("--network",),
        key="network",
        metavar="host|none",
        help="The container's network.  [default: host]",
    ),
    Flag(
        names=("--image-secret",),
        key="image_secret",
        metavar="NAME",
        help="Secret of the nodes with the credentials of the image's registry.",
    ),
    Flag(
        names=("--secret",),
        key="secrets",
        metavar="NAME",
        repeat=True,
        help="Secret of the nodes that the job finds in /run/secrets/NAME. May be repeated.",
    ),
    Flag(
        names=("--label",),
        key="labels",
        metavar="K=V",
        repeat=True,
        help="A label for people and filters. May be repeated.",
    ),
    Flag(
        names=("-a", "--array"),
        key="array",
        metavar="INDEXES",
        help="One job for each index: 0-15, 1,3,7, 0-100:10; 0-99%4 lets at most 4 run at a time. "
        "Each task finds its own in DLQ_ARRAY_TASK_ID.",
    ),
    Flag(
        names=("-d", "--dependency"),
        key="depends_on",
        metavar="RELATION:JOB[:JOB]",
        help="Not before other jobs: after (started), afterok, afternotok, afterany (ended), with "
        "`,` "
        "for all or `?` for any of them; singleton: one of this name at a time.",
    ),
    Flag(
        names=("--kill-on-invalid-dep",),
        key="cancel_if_never",
        metavar="YES|NO",
        help="Cancel it when its dependency can never come true, instead of holding it.  "
        "[default: no]",
    ),
    Flag(
        names=("-b", "--begin"),
        key="begin",
        metavar="TIME",
        help="Not before 18:00, 2026-12-01T08:00 (your zone), 2026-12-01T08:00Z or now+2hours.",
    ),
    Flag(
        names=("--nice",),
        key="nice",
        metavar="N",
        help="Behind all other jobs of its queue, 1 to 100; operators also before them, to -100.",
    ),
    Flag(
        names=("--save-signal",),
        key="checkpoint.save_signal",
        metavar="SIG",
        help="Signal on which the script saves and goes on, for `dlq checkpoint`: USR1, USR2, INT.",
    ),
    Flag(
        names=("--profile",),
        key="profile",
        help="Record its network traffic at its start, to learn its sizes and times.  [default: "
        "at the "
        "first start of a distributed job]",
    ),
    Flag(
        names=("-H", "--hold"),
        key="hold",
        help="Submit it on hold; `dlq release` lets it start.",
    ),
)

# The sections of `dlq submit --help`, in its order, and the keys whose flags stand in each.
SECTIONS: Mapping[str, tuple[str, ...]] = {
    "Job": ("name", "queue", "team", "labels", "workdir", "env", "export", "secrets"),
    "GPUs and nodes": (
        "resources.gpus_total", "resources.gpus", "nodes", "resources.gpu_type", "resources.gpu_memory",  # noqa: E501
        "resources.halve_batch", "resources.mixed_gpus", "resources.cpus", "resources.memory",
        "resources.constraint", "resources.nodelist", "resources.exclude",
    ),
    "Elastic jobs": ("elastic.gpus", "elastic.sizes", "elastic.resize"),
    "Order and time": ("time_limit", "estimate", "steps", "begin", "depends_on", "cancel_if_never", "array", "nice", "hold"),  # noqa: E501
    "Deadlines": ("deadline", "soft_deadline", "on_miss", "due", "weight"),
    "Checkpoints and restarts": (
        "preempt.signal", "preempt.grace", "retry.exit_codes", "retry.max_restarts", "checkpoint.dir",  # noqa: E501
        "checkpoint.marker", "checkpoint.settle", "checkpoint.preset", "checkpoint.save_signal",
    ),
    "Processes of a gang": ("launch", "roles.workers", "roles.ps", "compat", "tasks_per_node", "profile"),  # noqa: E501
    "Containers": ("image", "mounts", "resources.shm_size", "network", "image_secret"),
}  # fmt: skip

BY_NAME: Mapping[str, Flag] = {name: flag for flag in FLAGS for name in flag.names}

# Slurm's and our own flags of versions to come: named, so that nobody thinks they took effect.
LATER_FLAGS = frozenset(
    {
        "--account", "--contiguous",
        "--cpus-per-gpu", "--cpus-per-task", "--error", "--exclusive", "--keep-checkpoints",
        "--mail-type", "--mail-user", "--mem-per-gpu", "--no-preempt",
        "--no-requeue", "--notify", "--ntasks",
        "--output", "--preemptible", "--priority", "--qos", "--requeue",
        "--snapshot", "--time-min", "--topology", "--webhook",
        "-A", "-c", "-e", "-n", "-o",
    }
)  # fmt: skip


def put_flag(layer: Layer, flag: Flag, raw: str | bool, origin: str) -> None:
    """Read one occurrence of a flag into `layer`; a repeatable one adds, others override."""
    if not flag.repeat or isinstance(raw, bool):
        put(layer, flag.key, raw, origin, flag.shown)
        return
    try:
        if flag.key in ("mounts", "secrets"):
            put(layer, flag.key, [raw], origin, flag.shown)
        elif flag.key == "env":
            name, value = read_assignment(raw)
            put(layer, "env", [name if value is None else f"{name}={value}"], origin)
        else:
            label, text = read_label(raw)
            layer[f"{flag.key}.{label}"] = Given(text, origin)
    except ValueError as error:
        raise wrong(origin, str(error)) from None


def layer_from(occurrences: Iterable[tuple[Flag, str | bool, str]]) -> Layer:
    """The layer of one source from its (flag, value, origin) in the order written."""
    layer: Layer = {}
    for flag, raw, origin in occurrences:
        put_flag(layer, flag, raw, origin)
    return layer

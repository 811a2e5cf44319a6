"""Slurm's variables for a job with `compat = "slurm"`, as its batch script finds them.

`srun` sets those of a task (shim/steps).
"""

from collections.abc import Mapping, Sequence
from itertools import groupby

from dlq_common.job_fields.table.gang import CPUS_PER_TASK, GPUS_PER_TASK, TASKS, TASKS_IMPLIED
from dlq_compat.hostlist import compress, expand
from dlq_nodeagent.devices.port import Device
from dlq_nodeagent.model.messages import Launch

COMPAT = "slurm"
_ELSE = frozenset({"SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU"})  # one of three is said
_ARRAY = ("JOB_ID", "TASK_ID", "TASK_COUNT", "TASK_MIN", "TASK_MAX", "TASK_STEP")


def task_counts(launch: Launch, devices: tuple[Device, ...]) -> tuple[int, ...]:
    """The tasks of each node in rank order: as requested, else one for each GPU."""
    nodes = max(1, len(launch.node_ids))
    total = TASKS.of(launch.fields)
    if total is None:
        return (launch.tasks_per_node or max(1, len(devices)),) * nodes
    return spread(total, _rooms(launch, nodes))


def _rooms(launch: Launch, nodes: int) -> tuple[int, ...]:
    """The number of tasks for which each node has cores or GPUs."""
    cores, gpus = launch.node_core_counts, launch.node_gpu_counts
    each = (CPUS_PER_TASK if cores else GPUS_PER_TASK).of(launch.fields) or 1
    widths = cores or gpus
    return tuple(width // each for width in widths) if len(widths) == nodes else (0,) * nodes


def spread(total: int, rooms: Sequence[int]) -> tuple[int, ...]:
    """Tasks for each node: in turn while there is room, and in turn beyond that."""
    counts = [0] * len(rooms)
    while left := total - sum(counts):
        open_ = [at for at, room in enumerate(rooms) if counts[at] < room] or range(len(rooms))
        free = min((rooms[at] - counts[at] for at in open_), default=0)
        each = max(1, min(left // len(open_), free if free > 0 else left))
        for at in list(open_)[:left]:
            counts[at] += each
    return tuple(counts)


def slurm_environment(
    launch: Launch, devices: tuple[Device, ...], *, user: str, uid: int, now_s: float, cluster: str
) -> dict[str, str]:
    """The variables that a rank finds before any `srun`, which sets PROCID and LOCALID for each
    task.

    With several tasks on a node the rank's own values are those of its first task. `now_s` is UTC.
    """
    rank, counts = launch.key.node_rank, task_counts(launch, devices)
    nodes, hosts = len(counts), _listed(launch.node_ids)
    job = launch.key.job_id
    ours = {
        "SLURM_JOB_ID": job,
        "SLURM_JOBID": job,
        "SLURM_JOB_NAME": launch.job_name,
        "SLURM_JOB_USER": user,
        "SLURM_JOB_UID": str(uid),
        "SLURM_JOB_PARTITION": launch.queue,
        "SLURM_CLUSTER_NAME": cluster,
        "SLURM_JOB_NODELIST": hosts,
        "SLURM_NODELIST": hosts,
        "SLURM_NNODES": str(nodes),
        "SLURM_JOB_NUM_NODES": str(nodes),
        "SLURM_NODEID": str(rank),
        "SLURMD_NODENAME": launch.node_ids[rank] if rank < len(launch.node_ids) else "",
        **_tasks(launch, counts),
        "SLURM_PROCID": str(sum(counts[:rank])),
        "SLURM_LOCALID": "0",
        "SLURM_GTIDS": str(sum(counts[:rank])),
        "SLURM_JOB_GID": str(launch.gid),
        "SLURM_NODE_ALIASES": "(null)",
        "SLURM_TOPOLOGY_ADDR": launch.node_ids[rank] if rank < len(launch.node_ids) else "",
        "SLURM_TOPOLOGY_ADDR_PATTERN": "node",
        "TMPDIR": launch.environment.get("TMPDIR", "/tmp"),
        "SLURM_GPUS_ON_NODE": str(len(devices) or ""),
        "SLURM_JOB_GPUS": ",".join(str(index) for index in launch.gpu_indexes),
        "SLURM_SUBMIT_DIR": launch.environment.get("SLURM_SUBMIT_DIR", launch.working_directory),
        "SLURM_JOB_START_TIME": str(round(now_s)),
        **_limits(launch, counts, now_s),
        **_array(launch.environment),
    }
    if launch.restart_count:  # not set at the first start, as there
        ours["SLURM_RESTART_COUNT"] = str(launch.restart_count)
    return {name: value for name, value in ours.items() if value}


def _listed(hosts: Sequence[str]) -> str:
    """Slurm's short form, `gpu[1-4]`, if it keeps their order: the first one has rank 0."""
    short = compress(hosts)
    return short if expand(short) == list(hosts) else ",".join(hosts)


def _tasks(launch: Launch, counts: Sequence[int]) -> Mapping[str, str]:
    """The tasks, as far as they were requested, since `srun` takes them for options.

    Slurm counts cores where they follow from the nodes.
    """
    if TASKS_IMPLIED.of(launch.fields):
        each = CPUS_PER_TASK.of(launch.fields) or 1
        cores = [cpus // each for cpus in _cpus_per_node(launch, counts)]
        return {"SLURM_TASKS_PER_NODE": counted(cores)}
    total, each_node = str(sum(counts)), launch.tasks_per_node or 0
    fits = sum(counts) <= each_node * len(counts)  # else Slurm ignores it, and `srun` would refuse
    return {
        "SLURM_NTASKS": total,
        "SLURM_NPROCS": total,
        "SLURM_NTASKS_PER_NODE": str(each_node) if fits else "",
        "SLURM_TASKS_PER_NODE": counted(counts),
    }


def _limits(launch: Launch, counts: Sequence[int], now_s: float) -> Mapping[str, str]:
    ours = {}
    if launch.time_left_s is not None:
        ours["SLURM_JOB_END_TIME"] = str(round(now_s + launch.time_left_s))
    cpus = _cpus_per_node(launch, counts)
    ours["SLURM_CPUS_ON_NODE"] = str(cpus[min(launch.key.node_rank, len(cpus) - 1)])
    ours["SLURM_JOB_CPUS_PER_NODE"] = counted(cpus)
    if asked := CPUS_PER_TASK.of(launch.fields):
        ours["SLURM_CPUS_PER_TASK"] = str(asked)
    if gpus := GPUS_PER_TASK.of(launch.fields):
        ours["SLURM_GPUS_PER_TASK"] = str(gpus)
    if launch.memory_limit_bytes is not None and not _ELSE & launch.environment.keys():
        ours["SLURM_MEM_PER_NODE"] = str(launch.memory_limit_bytes >> 20)
    return ours


def _cpus_per_node(launch: Launch, counts: Sequence[int]) -> tuple[int, ...]:
    """Its cores on each node.

    A job with GPUs has its limit, else as many as its tasks need; it shares the others by the
    number of its GPUs.
    """
    if launch.node_core_counts:
        return launch.node_core_counts
    if launch.core_indexes:
        return (len(launch.core_indexes),) * len(counts)
    if launch.cpu_limit is not None:
        return (max(1, int(launch.cpu_limit)),) * len(counts)
    each = CPUS_PER_TASK.of(launch.fields) or 1
    return tuple(max(1, count * each) for count in counts)


def counted(numbers: Sequence[int]) -> str:
    """One number for each node as Slurm writes them: `4(x2),2`."""
    runs = [(number, len(list(run))) for number, run in groupby(numbers)]
    return ",".join(f"{number}(x{times})" if times > 1 else str(number) for number, times in runs)


def _array(environment: Mapping[str, str]) -> Mapping[str, str]:
    told = ((word, environment.get(f"DLQ_ARRAY_{word}")) for word in _ARRAY)
    return {f"SLURM_ARRAY_{word}": value for word, value in told if value is not None}

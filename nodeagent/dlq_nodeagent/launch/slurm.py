"""Slurm's variables for a job with `compat = "slurm"`, as its batch script finds them. Those of a
task are made by `srun` (shim/steps).
"""

from collections.abc import Mapping, Sequence
from itertools import groupby

from dlq_nodeagent.devices.port import Device
from dlq_nodeagent.model.messages import Launch

COMPAT = "slurm"
_ARRAY = ("JOB_ID", "TASK_ID", "TASK_COUNT", "TASK_MIN", "TASK_MAX", "TASK_STEP")


def tasks_of(launch: Launch, devices: tuple[Device, ...]) -> int:
    """Tasks of each node: as asked, else one for each GPU."""
    return launch.tasks_per_node or max(1, len(devices))


def slurm_environment(
    launch: Launch, devices: tuple[Device, ...], *, user: str, uid: int, now_s: float, cluster: str
) -> dict[str, str]:
    """The variables that a rank finds before any `srun`, which changes PROCID and LOCALID for each
    task. With several tasks on a node the rank's own values are those of its first one. `now_s` is
    UTC.
    """
    rank, tasks = launch.key.node_rank, tasks_of(launch, devices)
    nodes = max(1, len(launch.node_ids))
    hosts = ",".join(launch.node_ids)
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
        "SLURM_NTASKS": str(nodes * tasks),
        "SLURM_NPROCS": str(nodes * tasks),
        "SLURM_NTASKS_PER_NODE": str(tasks),
        "SLURM_TASKS_PER_NODE": counted((tasks,) * nodes),
        "SLURM_PROCID": str(rank * tasks),
        "SLURM_LOCALID": "0",
        "SLURM_GPUS_ON_NODE": str(len(devices)),
        "SLURM_JOB_GPUS": ",".join(str(index) for index in launch.gpu_indexes),
        "SLURM_SUBMIT_DIR": launch.working_directory,
        "SLURM_JOB_START_TIME": str(round(now_s)),
        **_limits(launch, tasks, now_s),
        **_array(launch.environment),
    }
    if launch.restart_count:  # not set at the first start, as there
        ours["SLURM_RESTART_COUNT"] = str(launch.restart_count)
    return {name: value for name, value in ours.items() if value}


def _limits(launch: Launch, tasks: int, now_s: float) -> Mapping[str, str]:
    ours = {}
    if launch.time_left_s is not None:
        ours["SLURM_JOB_END_TIME"] = str(round(now_s + launch.time_left_s))
    cpus = cpus_of(launch)
    if cpus is not None:
        ours["SLURM_CPUS_ON_NODE"] = str(cpus)
        ours["SLURM_CPUS_PER_TASK"] = str(max(1, cpus // tasks))
        each = launch.node_core_counts or (cpus,) * max(1, len(launch.node_ids))
        ours["SLURM_JOB_CPUS_PER_NODE"] = counted(each)
    if launch.memory_limit_bytes is not None:
        ours["SLURM_MEM_PER_NODE"] = str(launch.memory_limit_bytes >> 20)
    return ours


def cpus_of(launch: Launch) -> int | None:
    """The cores of this rank: its own, or the limit of a job with GPUs; None: there is none."""
    if launch.core_indexes:
        return len(launch.core_indexes)
    return None if launch.cpu_limit is None else max(1, int(launch.cpu_limit))


def counted(numbers: Sequence[int]) -> str:
    """One number for each node as Slurm writes them: `4(x2),2`."""
    runs = [(number, len(list(run))) for number, run in groupby(numbers)]
    return ",".join(f"{number}(x{times})" if times > 1 else str(number) for number, times in runs)


def _array(environment: Mapping[str, str]) -> Mapping[str, str]:
    told = ((word, environment.get(f"DLQ_ARRAY_{word}")) for word in _ARRAY)
    return {f"SLURM_ARRAY_{word}": value for word, value in told if value is not None}

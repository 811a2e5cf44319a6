"""Slurm's programs and variables for a job with `compat = "slurm"`, as its tasks find them.

The stand-ins' `batch` starts such a rank and stays its main process. After a restart of the agent
or the master it goes on like any other rank: its signal routing is part of the job.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

from dlq_common.start_causes import StartCause
from dlq_compat.install import install
from dlq_compat.srun import tasks_per_node
from dlq_nodeagent.devices.port import Device
from dlq_nodeagent.model.launch import Mount
from dlq_nodeagent.model.messages import Launch
from dlq_nodeagent.model.mistakes import LaunchRefused

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
        "SLURM_TASKS_PER_NODE": tasks_per_node(nodes, tasks),
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


_SHELL = "/bin/sh"  # by name: the state directory may be mounted noexec


def install_stand_ins(state_dir: Path) -> None:
    """Put them where jobs find them. OSError when that cannot be written."""
    install(_place(state_dir))


def with_batch(
    launch: Launch, argv: tuple[str, ...], devices: tuple[Device, ...], state_dir: Path | None
) -> tuple[str, ...]:
    """The words that start a rank; LaunchRefused where this node has no stand-ins.

    A script starts its steps itself, by `srun`. A command is a step of its own, with one process
    for each task.
    """
    if launch.compat != COMPAT:
        return argv
    if state_dir is None:
        words = "this node has no stand-ins for Slurm's programs"
        raise LaunchRefused(words, StartCause.INSTALL)
    programs = _place(state_dir) / "bin"
    step = () if launch.script or tasks_of(launch, devices) == 1 else (str(programs / "srun"), "--")
    return (_SHELL, str(programs / "batch"), *step, *argv)


def stand_ins_environment(launch: Launch, state_dir: Path | None) -> Mapping[str, str]:
    """The variable that leads a command beside the rank to the stand-ins."""
    if launch.compat != COMPAT or state_dir is None:
        return {}
    return {"DLQ_SLURM_BIN": str(_place(state_dir) / "bin")}


def stand_ins_mount(launch: Launch, state_dir: Path | None) -> tuple[Mount, ...]:
    """The part of the node that a container with such a rank must see."""
    if launch.compat != COMPAT or state_dir is None:
        return ()
    place = str(_place(state_dir))
    return (Mount(place, place, read_only=True),)


def _place(state_dir: Path) -> Path:
    return state_dir / COMPAT

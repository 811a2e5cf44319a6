"""The environment of a job: its own variables, and dlq's, which override them."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from dlq_common.live_resize import LIVE
from dlq_nodeagent.devices.port import Device
from dlq_nodeagent.launch.live_torchrun import SIGNALS_TO_HANDLE, live_torchrun
from dlq_nodeagent.launch.slurm import COMPAT, slurm_environment
from dlq_nodeagent.model.launch import CHECK, DEFAULT_PATH
from dlq_nodeagent.model.messages import Launch
from dlq_nodeagent.model.port import JobFiles

_LOOPBACK = "127.0.0.1"
# Of a job's own variables these alone are the master's words: it refuses a submitter's DLQ_*.
FROM_MASTER = frozenset(
    f"DLQ_ARRAY_{word}"
    for word in ("JOB_ID", "TASK_ID", "TASK_COUNT", "TASK_MIN", "TASK_MAX", "TASK_STEP")
) | {CHECK}
# Likewise those of a member of a group, which end in the names of its members.
GROUP_FROM_MASTER = "DLQ_GROUP_"


@dataclass(frozen=True, slots=True)
class UserAccount:
    """The variables that a login would set."""

    user: str
    home: str


def job_environment(
    launch: Launch,
    *,
    devices: tuple[Device, ...],
    files: JobFiles,
    account: UserAccount,
    now_s: float,
    cluster: str,
) -> dict[str, str]:
    """The whole environment: defaults of a login, then the job's own, then ours.

    Nothing of the agent's environment is in it, so the job's LD_* and PYTHON* are its own. Ours
    come last: a submitter cannot pretend to be another attempt or name another GPU. `now_s` is UTC.
    RANK, LOCAL_RANK and WORLD_SIZE are not set: launchers would take them for their own.
    """
    login = {
        "PATH": DEFAULT_PATH,
        "HOME": account.home,
        "USER": account.user,
        "LOGNAME": account.user,
    }
    return {
        **login,
        **launch.environment,
        **_identity(launch, now_s),
        **_gang(launch, devices),
        **_torchrun(launch, devices, files),
        **_elastic(launch, devices),
        **_devices(devices),
        **_files(launch, files),
        **_compat(launch, devices, account, now_s, cluster),
        **_check(launch, devices),
    }


def _identity(launch: Launch, now_s: float) -> Mapping[str, str]:
    ours = {
        "DLQ_JOB_ID": launch.key.job_id,
        "DLQ_ATTEMPT": str(launch.key.attempt),
        "DLQ_FENCE": str(launch.fence),
        "DLQ_RESTART_COUNT": str(launch.restart_count),
    }
    if launch.trial:
        ours["DLQ_TRIAL"] = "1"
    if launch.time_left_s is not None:
        ours["DLQ_TIME_LIMIT_END"] = str(round(now_s + launch.time_left_s))
    return ours


def _gang(launch: Launch, devices: tuple[Device, ...]) -> Mapping[str, str]:
    nodes = max(1, _node_count(launch))
    address, port = _rendezvous(launch)
    return {
        "DLQ_NODE_RANK": str(launch.key.node_rank),
        "DLQ_NNODES": str(nodes),
        "DLQ_NODELIST": ",".join(launch.node_ids),
        "DLQ_GPUS_PER_NODE": str(len(devices)),
        **_types(launch, devices),
        **({"DLQ_CPUS_PER_NODE": str(len(launch.core_indexes))} if launch.core_indexes else {}),
        "DLQ_MASTER_ADDR": address,
        "DLQ_MASTER_PORT": port,
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
        "NNODES": str(nodes),
        "NODE_RANK": str(launch.key.node_rank),
        "NPROC_PER_NODE": str(max(1, len(devices))),
    }


def _node_count(launch: Launch) -> int:
    return sum(map(bool, launch.node_gpu_counts)) or len(launch.node_ids)


def _types(launch: Launch, devices: tuple[Device, ...]) -> Mapping[str, str]:
    """The types of the GPUs here, and on each node of DLQ_NODELIST: they may differ."""
    types = launch.node_gpu_types or tuple(dict.fromkeys(device.gpu_type for device in devices))[:1]
    rank = launch.key.node_rank if launch.node_gpu_types else 0
    if rank >= len(types):
        return {}
    told = {"DLQ_GPU_TYPE": types[rank], "DLQ_NODE_GPU_TYPES": ",".join(types)}
    shares = [f"{share:.6g}" for share in launch.node_batch_shares]
    if rank < len(shares):
        told |= {"DLQ_BATCH_SHARE": shares[rank], "DLQ_NODE_BATCH_SHARES": ",".join(shares)}
    return told


def _torchrun(launch: Launch, devices: tuple[Device, ...], files: JobFiles) -> Mapping[str, str]:
    """Defaults of torchrun's options; the user's flags still win."""
    if launch.live:
        return live_torchrun(launch, len(devices), files.job_dir)
    address, port = _rendezvous(launch)
    return {
        "PET_NNODES": str(max(1, len(launch.node_ids))),
        "PET_NODE_RANK": str(launch.key.node_rank),
        "PET_NPROC_PER_NODE": str(max(1, len(devices))),
        "PET_RDZV_BACKEND": "static",  # c10d ignores the node rank
        "PET_RDZV_ENDPOINT": f"{address}:{port}",
        "PET_RDZV_ID": f"{launch.key.job_id}.{launch.key.attempt}",
        "PET_MAX_RESTARTS": "0",  # the scheduler restarts, not torchrun
        "PET_SIGNALS_TO_HANDLE": SIGNALS_TO_HANDLE,
        # torchrun would kill its workers after 30 s, in the middle of a save.
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(max(1, round(launch.grace_s))),
    }


def _elastic(launch: Launch, devices: tuple[Device, ...]) -> Mapping[str, str]:
    """The present and possible numbers of GPUs of an elastic job.

    DLQ_BATCH_SCALE is the factor of each GPU's work relative to the request. It keeps the batch of
    all GPUs the same, or fits it into the smaller memory of this node's GPUs.
    """
    if not launch.sizes and not launch.gpu_memory_bytes:
        return {}
    gpus = sum(launch.node_gpu_counts) or len(devices) * max(1, len(launch.node_ids))
    asked = launch.asked_gpus or gpus
    scale = asked / max(1, gpus)
    if any(0 < device.memory_bytes < launch.gpu_memory_bytes for device in devices):
        scale /= 2.0
    told = {"DLQ_GPUS": str(gpus), "DLQ_ASKED_GPUS": str(asked), "DLQ_BATCH_SCALE": f"{scale:g}"}
    if launch.live:  # how many there are says WORLD_SIZE, at every start of the workers
        told = {"DLQ_ASKED_GPUS": str(asked), "DLQ_ELASTIC_MODE": LIVE}
    if not launch.sizes:
        return told
    return {
        **told,
        "DLQ_BASE_GPUS": str(launch.sizes[0]),
        "DLQ_ELASTIC_SIZES": ",".join(map(str, launch.sizes)),
    }


def _compat(
    launch: Launch,
    devices: tuple[Device, ...],
    account: UserAccount,
    now_s: float,
    cluster: str,
) -> Mapping[str, str]:
    """Another scheduler's variables, only for a job that asks for them.

    Frameworks that find them behave differently (Lightning ignores SIGTERM).
    """
    if launch.compat != COMPAT:
        return {}
    return slurm_environment(
        launch, devices, user=account.user, uid=launch.uid, now_s=now_s, cluster=cluster
    )


def _check(launch: Launch, devices: tuple[Device, ...]) -> Mapping[str, str]:
    """A check is a program of the agent's own package, and the agent's interpreter runs it."""
    if CHECK not in launch.environment:
        return {}
    ours = {"PATH": f"{os.path.dirname(sys.executable)}:{DEFAULT_PATH}"}
    faults = next((device.script for device in devices if device.script), "")
    return ours | ({"DLQ_CHECK_FAULTS": faults} if faults else {})


def _rendezvous(launch: Launch) -> tuple[str, str]:
    gang = len(launch.node_addresses) > 1 or launch.live
    return (launch.node_addresses[0] if gang else _LOOPBACK), str(launch.master_port)


def _devices(devices: tuple[Device, ...]) -> Mapping[str, str]:
    """GPUs by uuid, which no renumbering can confuse.

    A job on virtual devices sees no real GPU at all: the machine's real ones belong to other users.
    """
    real = [device.uuid for device in devices if not device.virtual]
    ours = {"CUDA_VISIBLE_DEVICES": ",".join(real)}
    virtual = [device.uuid for device in devices if device.virtual]
    return ours | ({"DLQ_VIRTUAL_DEVICES": ",".join(virtual)} if virtual else {})


def _files(launch: Launch, files: JobFiles) -> Mapping[str, str]:
    ours = {
        "DLQ_PREEMPT_FILE": files.preempt_file,
        "DLQ_BEAT_FILE": files.beat_file,
        "DLQ_CHECKPOINT_DIR": launch.checkpoint_directory,
        "DLQ_RESUME_FROM": launch.resume_from,
        "DLQ_DONE_FILE": files.done_file,
        "DLQ_SAVE_FILE": files.save_file,
    }
    return {name: value for name, value in ours.items() if value}

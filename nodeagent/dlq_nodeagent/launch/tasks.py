"""The processes of one rank on this node: one, one for each GPU, or workers and servers."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dlq_nodeagent.devices.port import Device
from dlq_nodeagent.launch.programs import program_at, program_mount
from dlq_nodeagent.launch.steps import step_port_count
from dlq_nodeagent.model.launch import Mount
from dlq_nodeagent.model.messages import Launch
from dlq_nodeagent.shim.binary import TASKS_NAME

PER_GPU = "per-gpu"
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One process of the command, and its own variables."""

    name: str
    """The name for people: "rank 5", "worker 2", "ps 0"."""
    environment: Mapping[str, str]
    serves: bool = False
    """True for a task that serves others: the job is done without it."""


def port_count(launch: Launch) -> int:
    """The number of ports of a rank: for the rendezvous, each worker or server, and steps."""
    rendezvous = 1 if launch.key.node_rank == 0 else 0
    return rendezvous + len(_roles_here(launch)) + step_port_count(launch)


def with_own_ports(launch: Launch, ports: tuple[int, ...]) -> Launch:
    """The launch with the ports found here, if it is on one node and needs no other node's."""
    if not ports or launch.node_ports or len(launch.node_ids) > 1:
        return launch
    return replace(launch, master_port=ports[0], node_ports=(ports,))


def tasks_of(launch: Launch, devices: Sequence[Device]) -> tuple[Task, ...]:
    """The tasks of this node; empty: one process, which knows only its node."""
    if launch.worker_count:
        return _role_tasks(launch, devices)
    if launch.launch_mode == PER_GPU:
        return _gpu_tasks(launch, devices)
    return ()


def with_tasks(
    launch: Launch,
    words: tuple[str, ...],
    devices: Sequence[Device],
    *,
    words_at: str,
    state_dir: Path | None = None,
) -> tuple[str, ...]:
    """The command of a rank, with `dlq-tasks` before it if it has several processes.

    `dlq-tasks` reports them in the job's own directory `words_at`. A restart of the agent or the
    master does not touch it. Silence ends it like any main process.
    """
    tasks = tasks_of(launch, devices)
    if not tasks:
        return words
    told: list[str] = [
        program_at(TASKS_NAME, state_dir),
        "--words",
        words_at,
        "--grace",
        str(round(launch.grace_s * 1000)),
    ]
    if len(launch.node_ids) <= 1:
        told.append("--alone")
    for task in tasks:
        told += ["--serve" if task.serves else "--task", task.name]
        told += [f"{name}={value}" for name, value in task.environment.items()]
    return (*told, "--", *words)


def tasks_mount(launch: Launch, state_dir: Path | None) -> tuple[Mount, ...]:
    """The part of the node that a container with several tasks must see."""
    if not launch.worker_count and launch.launch_mode != PER_GPU:
        return ()
    return program_mount(TASKS_NAME, state_dir)


# ---- a process for each GPU


def _gpu_tasks(launch: Launch, devices: Sequence[Device]) -> tuple[Task, ...]:
    counts = launch.node_gpu_counts or (len(devices),) * max(1, len(launch.node_ids))
    first = sum(counts[: launch.key.node_rank])
    return tuple(
        Task(
            name=f"rank {first + local}",
            environment={
                "RANK": str(first + local),
                "LOCAL_RANK": str(local),
                "WORLD_SIZE": str(sum(counts)),
                "LOCAL_WORLD_SIZE": str(len(devices)),
                "GROUP_RANK": str(launch.key.node_rank),
            },
        )
        for local in range(len(devices))
    )


# ---- roles


@dataclass(frozen=True, slots=True)
class _Place:
    """The node of one worker or server, and its place among the tasks there."""

    role: str
    index: int
    node_rank: int
    local: int


def _places(launch: Launch) -> tuple[_Place, ...]:
    """Every worker and server. Workers are where their GPUs are, servers are dealt to the nodes."""
    counts = launch.node_gpu_counts or (len(launch.gpu_indexes),)
    each = max(1, sum(counts) // max(1, launch.worker_count))
    wanted = [("worker", node) for node, count in enumerate(counts) for _ in range(count // each)]
    wanted = wanted[: launch.worker_count]
    wanted += [("ps", index % len(counts)) for index in range(launch.ps_count)]
    places: list[_Place] = []
    for role, node in wanted:
        index = sum(place.role == role for place in places)
        local = sum(place.node_rank == node for place in places)
        places.append(_Place(role, index, node, local))
    return tuple(places)


def _roles_here(launch: Launch) -> tuple[_Place, ...]:
    if not launch.worker_count:
        return ()
    return tuple(it for it in _places(launch) if it.node_rank == launch.key.node_rank)


def _role_tasks(launch: Launch, devices: Sequence[Device]) -> tuple[Task, ...]:
    places = _places(launch)
    cluster: dict[str, list[str]] = {"worker": [], "ps": []}
    for place in places:
        cluster[place.role].append(f"{_address(launch, place)}:{_port(launch, place)}")
    each = sum(launch.node_gpu_counts or (len(devices),)) // launch.worker_count
    tasks, given = [], 0
    for place in (it for it in places if it.node_rank == launch.key.node_rank):
        serves = place.role == "ps"
        own = () if serves else devices[given : given + each]
        given += len(own)
        tasks.append(
            Task(
                name=f"{place.role} {place.index}",
                environment=_role_environment(launch, place, cluster, own),
                serves=serves,
            )
        )
    return tuple(tasks)


def _role_environment(
    launch: Launch, place: _Place, cluster: Mapping[str, Sequence[str]], devices: Sequence[Device]
) -> dict[str, str]:
    task = {"type": place.role, "index": place.index}
    told = {name: found for name, found in cluster.items() if found}
    number = "DMLC_SERVER_ID" if place.role == "ps" else "DMLC_WORKER_ID"
    virtual = [device.uuid for device in devices if device.virtual]
    return {
        "TF_CONFIG": json.dumps({"cluster": told, "task": task}, separators=(",", ":")),
        "DMLC_ROLE": "server" if place.role == "ps" else "worker",
        "DMLC_PS_ROOT_URI": launch.node_addresses[0] if len(launch.node_ids) > 1 else _LOOPBACK,
        "DMLC_PS_ROOT_PORT": str(launch.master_port),
        "DMLC_NUM_WORKER": str(launch.worker_count),
        "DMLC_NUM_SERVER": str(launch.ps_count),
        number: str(place.index),
        "DLQ_ROLE": place.role,
        "DLQ_ROLE_INDEX": str(place.index),
        "DLQ_TASK_PORT": str(_port(launch, place)),
        "CUDA_VISIBLE_DEVICES": ",".join(it.uuid for it in devices if not it.virtual),
        "DLQ_VIRTUAL_DEVICES": ",".join(virtual),
    }


def _address(launch: Launch, place: _Place) -> str:
    return launch.node_addresses[place.node_rank] if len(launch.node_ids) > 1 else _LOOPBACK


def _port(launch: Launch, place: _Place) -> int:
    """The port; 0 while the ports of all nodes are not known, with which nothing is started."""
    if len(launch.node_ports) <= place.node_rank:
        return 0
    rendezvous = 1 if place.node_rank == 0 else 0
    return launch.node_ports[place.node_rank][rendezvous + place.local]

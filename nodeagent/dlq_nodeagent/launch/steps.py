"""Slurm's programs for a job with `compat = "slurm"`, and the steps that its batch script starts.

`batch` (shim/steps) is the main process of every rank. On the first node it runs the batch script,
on the others it only serves steps: `srun` reaches all nodes of its job without any daemon. So a
restart or a silence of the agent or the master changes nothing for running steps.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from dlq_common.start_causes import StartCause
from dlq_compat.install import install
from dlq_nodeagent.devices.port import Device
from dlq_nodeagent.jobtree.paths import PathRefused, check_entered, is_below
from dlq_nodeagent.launch.slurm import COMPAT, task_counts
from dlq_nodeagent.model.launch import Mount
from dlq_nodeagent.model.messages import Launch
from dlq_nodeagent.model.mistakes import LaunchRefused
from dlq_nodeagent.ranks.orders import SIGNALS
from dlq_nodeagent.shim.binary import STEPS_NAME, ShimMissing, ensure_program

_LOOPBACK = "127.0.0.1"
_ELSEWHERE = "/tmp"
_SCRIPT = "script"  # a value of signal_to


def install_stand_ins(state_dir: Path) -> None:
    """Put Slurm's programs where jobs find them. OSError: they cannot be written. Without
    `dlq-steps` only the others.
    """
    try:
        steps = ensure_program(STEPS_NAME)
    except ShimMissing:
        steps = None
    install(_place(state_dir), steps=steps)


class StartPlace(NamedTuple):
    """The requested working directory of a rank, and the one in which it starts."""

    wanted: str
    directory: str


def start_of(launch: Launch, cwd: str, what: str, roots: Sequence[str]) -> StartPlace:
    """The directories of a rank. As in Slurm it starts in /tmp if its user cannot enter its own
    one.

    PathRefused: this node does not allow that, or the job is not for Slurm. Call it with the user's
    rights.
    """
    try:
        check_entered(cwd, what)
    except PathRefused:
        if launch.compat != COMPAT or not is_below(_ELSEWHERE, roots):
            raise
        return StartPlace(cwd, _ELSEWHERE)
    return StartPlace(cwd, cwd)


def with_batch(
    launch: Launch,
    argv: tuple[str, ...],
    devices: tuple[Device, ...],
    state_dir: Path | None,
    start: StartPlace,
) -> tuple[str, ...]:
    """The command of a rank, with `batch` before it. LaunchRefused: this node has no stand-ins.

    A script starts its steps itself, by `srun`. A command is a step of its own, with one process
    for each task of all nodes.
    """
    if launch.compat != COMPAT:
        return argv
    if state_dir is None:
        words = "this node has no stand-ins for Slurm's programs"
        raise LaunchRefused(words, StartCause.INSTALL)
    try:
        ensure_program(STEPS_NAME)
    except ShimMissing as missing:
        raise LaunchRefused(str(missing), StartCause.INSTALL) from None
    programs = _place(state_dir) / "bin"
    batch = str(programs / "batch")
    if _spans_nodes(launch) and launch.key.node_rank > 0:
        return (batch, "--hold")
    alone = sum(task_counts(launch, devices)) == 1 and not _spans_nodes(launch)
    step = () if launch.script or alone else (str(programs / "srun"), "-K", "--")
    missed = () if start.directory == start.wanted else ("--chdir", start.wanted)
    return (batch, *missed, *step, *argv)


def step_port_count(launch: Launch) -> int:
    """Ports of a rank at which other nodes of its job ask it for steps."""
    return 1 if launch.compat == COMPAT and _spans_nodes(launch) else 0


def step_environment(
    launch: Launch, devices: tuple[Device, ...], state_dir: Path | None
) -> Mapping[str, str]:
    """Variables that tell `batch` its rank and the others, and where Slurm's programs are."""
    if launch.compat != COMPAT or state_dir is None:
        return {}
    ours = {"DLQ_SLURM_BIN": str(_place(state_dir) / "bin")}
    if launch.signal_to == _SCRIPT and launch.preempt_signal in SIGNALS:
        ours["DLQ_SCRIPT_SIGNAL"] = str(int(SIGNALS[launch.preempt_signal]))
    if not _spans_nodes(launch):
        name = launch.node_ids[launch.key.node_rank] if launch.node_ids else "localhost"
        alone = _peer(name, _LOOPBACK, 0, len(devices), _cores_of(launch, launch.key.node_rank))
        return {**ours, "DLQ_STEP_RANK": "0", "DLQ_STEP_PEERS": alone}
    ports = [own[-1] if own else 0 for own in launch.node_ports] or [0] * len(launch.node_ids)
    gpus = launch.node_gpu_counts or (len(devices),) * len(ports)
    peers = [
        _peer(name, address, ports[rank], gpus[rank], _cores_of(launch, rank))
        for rank, (name, address) in enumerate(
            zip(launch.node_ids, launch.node_addresses, strict=True)
        )
    ]
    return {
        **ours,
        "DLQ_STEP_RANK": str(launch.key.node_rank),
        "DLQ_STEP_PEERS": ";".join(peers),
        "DLQ_STEP_KEY": launch.step_key,
    }


def stand_ins_mount(launch: Launch, state_dir: Path | None) -> tuple[Mount, ...]:
    """The part of the node that a container with such a rank must see."""
    if launch.compat != COMPAT or state_dir is None:
        return ()
    place = str(_place(state_dir))
    return (Mount(place, place, read_only=True),)


def _spans_nodes(launch: Launch) -> bool:
    """Whether one batch script has several nodes.

    A job that is resized live has a script on each node, since its nodes come and go.
    """
    return len(launch.node_ids) > 1 and not launch.live


def _peer(name: str, address: str, port: int, gpus: int, cores: int) -> str:
    return f"{name} {address} {port} {gpus} {cores}"


def _cores_of(launch: Launch, rank: int) -> int:
    """The cores that steps share there; 0: they are not counted."""
    if rank < len(launch.node_core_counts):
        return launch.node_core_counts[rank]
    return 0 if launch.cpu_limit is None else max(1, int(launch.cpu_limit))


def _place(state_dir: Path) -> Path:
    return state_dir / COMPAT

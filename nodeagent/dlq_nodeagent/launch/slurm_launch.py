"""How a rank with `compat = "slurm"` is started: by the stand-ins' `batch`, which stays its main
process.

After a restart of the agent or the master it goes on like any other rank: its signal routing is
part of the job.
"""

from pathlib import Path

from dlq_common.start_causes import StartCause
from dlq_compat.install import install
from dlq_nodeagent.devices.port import Device
from dlq_nodeagent.launch.slurm_env import COMPAT, tasks_of
from dlq_nodeagent.model.container import Mount
from dlq_nodeagent.model.messages import Launch
from dlq_nodeagent.model.port import LaunchRefused

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


def stand_ins_mount(launch: Launch, state_dir: Path | None) -> tuple[Mount, ...]:
    """The part of the node that a container with such a rank must see."""
    if launch.compat != COMPAT or state_dir is None:
        return ()
    place = str(_place(state_dir))
    return (Mount(place, place, read_only=True),)


def _place(state_dir: Path) -> Path:
    return state_dir / COMPAT

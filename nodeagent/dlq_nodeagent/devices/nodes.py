"""The device nodes of GPUs: the node of each GPU, and the nodes that are closed to a job."""

import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

from dlq_nodeagent.cgroups.port import OnlyMinors
from dlq_nodeagent.devices.port import Device

DEV = Path("/dev")
DRIVER_GPUS = Path("/proc/driver/nvidia/gpus")
_GPU_NODE = re.compile(r"nvidia[0-9]+\Z", re.ASCII)
# Nodes of the same major that every program on any NVIDIA GPU opens.
_SHARED = ("nvidiactl", "nvidia-modeset")


def own_gpus(
    own: Iterable[Device], *, dev: Path = DEV, driver_gpus: Path = DRIVER_GPUS
) -> tuple[OnlyMinors, ...]:
    """The GPU nodes that a job with these GPUs may open; empty on a host without GPU nodes.

    Also a GPU that appears while the job runs is kept from it. Virtual devices have no nodes: a job
    on them may open no GPU at all, as one without GPUs may not.
    """
    majors = {_number(path)[0] for path in _gpu_nodes(dev)}
    mine = {
        node_of(device, dev=dev, driver_gpus=driver_gpus) for device in own if not device.virtual
    }
    shared = {dev / name for name in _SHARED}
    numbers = [_number(path) for path in mine | shared if _is_node(path)]
    return tuple(
        OnlyMinors(major, frozenset(minor for its, minor in numbers if its == major))
        for major in sorted(majors)
    )


def without_node(
    devices: Iterable[Device], *, dev: Path = DEV, driver_gpus: Path = DRIVER_GPUS
) -> str:
    """Why GPUs cannot be told apart by their nodes: one has none. Empty: each has its own."""
    for device in devices:
        if not device.virtual:
            node = node_of(device, dev=dev, driver_gpus=driver_gpus)
            if not _is_node(node):
                return f"GPU {device.index} has no device file {node}"
    return ""


def node_of(device: Device, *, dev: Path = DEV, driver_gpus: Path = DRIVER_GPUS) -> Path:
    """The node of a GPU by its minor number, which need not be its index; it may be missing."""
    minor = _minor(device.uuid, driver_gpus) if device.minor is None else device.minor
    return dev / f"nvidia{device.index if minor is None else minor}"


def _gpu_nodes(dev: Path) -> list[Path]:
    try:
        names = sorted(name for name in os.listdir(dev) if _GPU_NODE.match(name))
    except OSError:
        return []
    return [dev / name for name in names if _is_node(dev / name)]


def _is_node(path: Path) -> bool:
    try:
        return stat.S_ISCHR(path.lstat().st_mode)
    except OSError:
        return False


def _number(path: Path) -> tuple[int, int]:
    device = path.lstat().st_rdev
    return os.major(device), os.minor(device)


def _minor(uuid: str, driver_gpus: Path) -> int | None:
    for path in sorted(driver_gpus.glob("*/information")):
        try:
            text = path.read_text()
        except OSError:
            continue
        found = re.search(r"Device Minor:\s*(\d+)", text)
        if found and re.search(rf"GPU UUID:\s*{re.escape(uuid)}\s", text + "\n"):
            return int(found[1])
    return None

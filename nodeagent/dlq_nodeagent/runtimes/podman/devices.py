"""The words that give a container its GPUs: names of a CDI specification, else the device nodes."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from dlq_common.daemon.logs import get_logger
from dlq_common.start_causes import StartCause
from dlq_nodeagent.devices.nodes import DEV, DRIVER_GPUS, node_of
from dlq_nodeagent.devices.port import Device
from dlq_nodeagent.model.mistakes import LaunchRefused

KIND = "nvidia.com/gpu"
CDI_DIRS = (Path("/etc/cdi"), Path("/var/run/cdi"))
# Nodes that every program on an NVIDIA GPU opens besides the GPU itself, where they exist.
_CONTROL = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
_LARGEST_SPEC = 4 << 20

log = get_logger("nodeagent.cdi")


def device_words(
    devices: Iterable[Device],
    *,
    cdi_dirs: Sequence[Path] = CDI_DIRS,
    dev: Path = DEV,
    proc: Path = DRIVER_GPUS,
) -> tuple[str, ...]:
    """Words for podman's --device. A CDI specification that names the GPU by its UUID or its index
    wins: it brings the driver's libraries. Raw nodes come without them: the image must have its
    own.

    Virtual devices have no nodes; a job knows them by its environment. Raises LaunchRefused for a
    GPU that this host has no way to show to a container.
    """
    real = [device for device in devices if not device.virtual]
    if not real:
        return ()
    names = _cdi_names(cdi_dirs)
    words: list[str] = []
    for device in real:
        named = next((name for name in (device.uuid, str(device.index)) if name in names), None)
        words.append(f"{KIND}={named}" if named else str(_node(device, dev, proc)))
    if any(word.startswith("/") for word in words):
        words += [str(dev / name) for name in _CONTROL if (dev / name).exists()]
    return tuple(words)


def _cdi_names(directories: Iterable[Path]) -> set[str]:
    names: set[str] = set()
    for directory in directories:
        for path in sorted(directory.glob("*")) if directory.is_dir() else ():
            if path.suffix in (".json", ".yaml", ".yml"):
                names |= _names_in(path)
    return names


def _names_in(path: Path) -> set[str]:
    import yaml  # few hosts have such a file

    try:
        text = path.read_text()[:_LARGEST_SPEC]
        spec = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
        if spec.get("kind") != KIND:
            return set()
        return {str(device["name"]) for device in spec.get("devices", ())}
    except (OSError, ValueError, yaml.YAMLError, AttributeError, KeyError, TypeError) as error:
        log.warning("cdi_spec_unreadable", path=str(path), error=str(error))
        return set()


def _node(device: Device, dev: Path, proc: Path) -> Path:
    node = node_of(device, dev=dev, driver_gpus=proc)
    if not node.exists():
        words = f"{device.uuid}: no CDI specification names it, and there is no {node}"
        raise LaunchRefused(words, StartCause.DEVICES)
    return node

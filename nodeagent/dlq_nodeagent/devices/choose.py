"""Turns the word given to `--devices` into the devices themselves."""

from dlq_nodeagent.devices.fake import FakeDevices, parse_virtual
from dlq_nodeagent.devices.nvml import NvmlDevices
from dlq_nodeagent.devices.port import Device, Devices, DeviceSample, DeviceUsage, DeviceVitals

_VIRTUAL = "fake:"


def check_devices_word(word: str) -> None:
    """Refuse a word that `open_devices` would not understand; opens nothing."""
    if word.startswith(_VIRTUAL):
        parse_virtual(word.removeprefix(_VIRTUAL))
    elif word not in {"nvml", "none"}:
        raise ValueError(f"--devices is nvml, none or fake:8xH100-80GB; got {word!r}")


def open_devices(word: str, *, node_name: str) -> Devices:
    """The devices for "nvml", "none" or "fake:8xH100-80GB"; ValueError for another word.

    Virtual devices are never a fallback: without a driver, "nvml" raises DevicesUnavailable.
    """
    check_devices_word(word)
    if word.startswith(_VIRTUAL):
        return FakeDevices(parse_virtual(word.removeprefix(_VIRTUAL)), node_name)
    return NvmlDevices() if word == "nvml" else NoDevices()


class NoDevices:
    """No device at all; jobs that ask for CPUs only can still run here."""

    def devices(self) -> tuple[Device, ...]:
        return ()

    def usage(self, uuid: str) -> DeviceUsage:
        raise KeyError(uuid)

    def vitals(self) -> tuple[DeviceVitals, ...]:
        return ()

    def samples(self) -> tuple[DeviceSample, ...]:
        return ()

    def next_xid(self) -> tuple[str, int] | None:
        return None

    def driver_version(self) -> str:
        return "none"

"""The NVIDIA driver's own word on the GPUs here, through its library NVML."""

from __future__ import annotations

import ctypes
from pathlib import Path

from dlq_cli.doctor.host import Host, HostWish
from dlq_cli.doctor.verdict import CheckVerdict, fail, ok, skip, warn

LIBRARY = "libnvidia-ml.so.1"
_REMEDIES = {
    4: ("no permission to use the driver", "look at the modes of /dev/nvidia*"),
    9: ("the driver is not loaded", "modprobe nvidia; dmesg says why it is not"),
    18: ("library and kernel module are of different versions", "reboot, or load the new module"),
}
_VISION = "or try dlq on GPUs that are pretended: --devices fake:8xH100-80GB"


def nvml(wish: HostWish, library: str = LIBRARY) -> CheckVerdict:
    """Whether the driver answers, and how many GPUs it has."""
    if wish.devices != "nvml":
        return skip("NVML", f"not asked for: the configuration says devices = {wish.devices!r}")
    try:
        driver = ctypes.CDLL(library)
    except OSError:
        return fail("NVML", f"{LIBRARY} is not there: no NVIDIA driver is installed",
                    f"install the driver; {_VISION}")  # fmt: skip
    try:
        return _asked(driver)
    except AttributeError as error:
        return fail("NVML", f"the driver is too old: {error}", "install a driver from 510 on")


def _asked(driver: ctypes.CDLL) -> CheckVerdict:
    code = driver.nvmlInitWithFlags(ctypes.c_uint(0))
    if code:
        found, todo = _REMEDIES.get(code, (f"the driver answers with error {code}", "nvidia-smi"))
        return fail("NVML", found, todo)
    try:
        version = ctypes.create_string_buffer(96)
        driver.nvmlSystemGetDriverVersion(version, ctypes.c_uint(len(version)))
        count = ctypes.c_uint(0)
        code = driver.nvmlDeviceGetCount_v2(ctypes.byref(count))
    finally:
        driver.nvmlShutdown()
    named = f"driver {version.value.decode('ascii', 'replace')}, {count.value} GPUs"
    if code or not count.value:
        return fail("NVML", named, "nvidia-smi -L lists none either? look at lspci and dmesg")
    return ok("NVML", named)


def cdi(host: Host, wish: HostWish) -> CheckVerdict:
    """Descriptions of the GPUs for containers."""
    if wish.devices != "nvml":
        return skip("CDI", "no real GPUs are asked for")
    for place in ("/etc/cdi", "/var/run/cdi", "/run/cdi"):
        found = sorted(path.name for path in _listed(host.path(place)) if "nvidia" in path.name)
        if found:
            return ok("CDI", f"{place}/{found[0]}")
    return warn("CDI", "no description of NVIDIA devices: podman gets the device files themselves",
                "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml")  # fmt: skip


def _listed(place: Path) -> list[Path]:
    try:
        return list(place.iterdir())
    except OSError:
        return []

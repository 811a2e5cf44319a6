"""Real NVIDIA GPUs, asked through NVML (`pynvml` of the nvidia-ml-py distribution)."""

import ctypes
import importlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from dlq_nodeagent.devices.gpu_type import gpu_type_of
from dlq_nodeagent.devices.nvml_vitals import Examiner
from dlq_nodeagent.devices.port import (
    Device,
    DeviceFault,
    DeviceProcess,
    DeviceSample,
    DevicesUnavailable,
    DeviceUsage,
    DeviceVitals,
)

_NO_LIBRARY = (
    "libnvidia-ml.so.1 was not found: install the NVIDIA driver on this machine "
    "(or start the agent with --devices none, or --devices fake:8xH100-80GB for virtual devices)"
)
_NO_BINDING = "the Python package nvidia-ml-py is not installed: install dlq with its `agent` extra"
_NO_DRIVER = "the NVIDIA driver is installed but not loaded: run `modprobe nvidia` or reboot"
_MISMATCH = (
    "the NVIDIA library and the loaded kernel module have different versions: reboot this machine"
)
_NO_PERMISSION = "the agent may not open the NVIDIA devices: check the permissions of /dev/nvidia*"


class NvmlDevices:
    """The GPUs of this machine. Holds NVML open until `close`.

    NVML numbers devices by PCI order and ignores CUDA_VISIBLE_DEVICES, so the agent's own
    environment cannot renumber them. A device that is lost after the start stays listed, as its
    identity was read once, and is reported unhealthy. One that is lost before the agent starts is
    not listed, and the master sees one GPU fewer.
    """

    def __init__(self) -> None:
        self._nvml = _load()
        self._open()
        self._handles: dict[str, Any] = {}
        self._devices = tuple(self._read_devices())
        self._driver_version = str(self._nvml.nvmlSystemGetDriverVersion())
        self._examiner = Examiner(self._nvml)
        self._events: Any = None

    def close(self) -> None:
        self._nvml.nvmlShutdown()

    def devices(self) -> tuple[Device, ...]:
        return self._devices

    def driver_version(self) -> str:
        return self._driver_version

    def library_version(self) -> str:
        """The version of NVML; "?" where it does not tell it."""
        try:
            return str(self._nvml.nvmlSystemGetNVMLVersion())
        except self._nvml.NVMLError:
            return "?"

    def usage(self, uuid: str) -> DeviceUsage:
        handle = self._handles[uuid]
        memory = self._ask(uuid, self._memory, handle)
        listed = self._ask(uuid, self._compute_processes, handle)
        clients = self._ask(uuid, self._mps_clients, handle)
        processes = {int(p.pid): p.usedGpuMemory for p in (*clients, *listed)}
        of_mps = {int(p.pid) for p in clients} | {pid for pid in processes if _serves_mps(pid)}
        return DeviceUsage(
            used_memory_bytes=int(memory.used),
            processes=tuple(DeviceProcess(*one) for one in sorted(processes.items())),
            mps_pids=tuple(sorted(of_mps)),
        )

    def vitals(self) -> tuple[DeviceVitals, ...]:
        return tuple(self._vitals_of(device.uuid) for device in self._devices)

    def samples(self) -> tuple[DeviceSample, ...]:
        return tuple(self._sample_of(device.uuid) for device in self._devices)

    def _sample_of(self, uuid: str) -> DeviceSample:
        try:
            return self._examiner.sample(uuid, self._handles[uuid])
        except self._nvml.NVMLError:
            return DeviceSample(uuid)

    def next_xid(self) -> tuple[str, int] | None:
        """A driver that sends no messages has none."""
        nvml = self._nvml
        try:
            if self._events is None:
                self._events = self._registered()
            event = nvml.nvmlEventSetWait_v2(self._events, 0)
        except nvml.NVMLError_Timeout:
            return None
        except nvml.NVMLError:
            # A card that was lost takes the whole set along: the next call makes another.
            self._drop_events()
            return None
        if event.eventType != nvml.nvmlEventTypeXidCriticalError:
            return None
        uuid = next((it for it, handle in self._handles.items() if _same(handle, event.device)), "")
        return (uuid, int(event.eventData)) if uuid else None

    def _vitals_of(self, uuid: str) -> DeviceVitals:
        handle = self._handles[uuid]
        try:
            usage = self.usage(uuid)
            vitals: DeviceVitals = self._ask(
                uuid, lambda it: self._examiner.examine(uuid, it, usage), handle
            )
        except DeviceFault as fault:
            return DeviceVitals(uuid, ((fault.reason, ""),))
        return vitals

    def _registered(self) -> Any:
        nvml = self._nvml
        events = nvml.nvmlEventSetCreate()
        for handle in self._handles.values():
            try:
                nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, events)
            except nvml.NVMLError:
                continue
        return events

    def _drop_events(self) -> None:
        if self._events is not None:
            with suppress(self._nvml.NVMLError):
                self._nvml.nvmlEventSetFree(self._events)
        self._events = None

    def _memory(self, handle: Any) -> Any:
        # The first version counts the driver's own reserve as used, which is more than
        # RELEASED_MEMORY_BYTES on recent cards.
        try:
            return self._nvml.nvmlDeviceGetMemoryInfo(handle, version=self._nvml.nvmlMemory_v2)
        except (self._nvml.NVMLError_FunctionNotFound, self._nvml.NVMLError_NotSupported):
            return self._nvml.nvmlDeviceGetMemoryInfo(handle)

    def _compute_processes(self, handle: Any) -> Any:
        try:
            return self._nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle)
        except self._nvml.NVMLError_FunctionNotFound:  # drivers older than 510
            return self._nvml.nvmlDeviceGetComputeRunningProcesses_v2(handle)

    def _mps_clients(self, handle: Any) -> Any:
        """They are in a list of their own, which not every driver has. One that does not answer at
        all has failed the question before.
        """
        try:
            return self._nvml.nvmlDeviceGetMPSComputeRunningProcesses_v3(handle)
        except self._nvml.NVMLError:
            return ()

    def _open(self) -> None:
        nvml = self._nvml
        remedies = {
            nvml.NVML_ERROR_LIBRARY_NOT_FOUND: _NO_LIBRARY,
            nvml.NVML_ERROR_DRIVER_NOT_LOADED: _NO_DRIVER,
            nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: _MISMATCH,
            nvml.NVML_ERROR_NO_PERMISSION: _NO_PERMISSION,
        }
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            raise DevicesUnavailable(remedies.get(error.value, f"NVML: {error}")) from error

    def _read_devices(self) -> list[Device]:
        nvml = self._nvml
        found = []
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                found.append(self._read_device(index))
            except nvml.NVMLError_GpuIsLost:
                continue
            except nvml.NVMLError as error:
                raise DevicesUnavailable(f"NVML, device {index}: {error}") from error
        return found

    def _read_device(self, index: int) -> Device:
        nvml = self._nvml
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        uuid, name = str(nvml.nvmlDeviceGetUUID(handle)), str(nvml.nvmlDeviceGetName(handle))
        memory_bytes = int(self._memory(handle).total)
        self._handles[uuid] = handle
        return Device(
            index=index,
            uuid=uuid,
            gpu_type=gpu_type_of(name, memory_bytes),
            model_name=name,
            memory_bytes=memory_bytes,
            virtual=False,
            pci=self._pci(handle),
            minor=self._minor(handle),
        )

    def _pci(self, handle: Any) -> str:
        """`00000000:3B:00.0` of NVML is `0000:3b:00` in the kernel's log."""
        try:
            place = self._nvml.nvmlDeviceGetPciInfo(handle)
        except self._nvml.NVMLError:  # it finds messages in that log, and no more
            return ""
        return f"{place.domain:04x}:{place.bus:02x}:{place.device:02x}"

    def _minor(self, handle: Any) -> int | None:
        """Sandboxed kernels do not show it in /proc, and the driver itself knows it."""
        try:
            return int(self._nvml.nvmlDeviceGetMinorNumber(handle))
        except self._nvml.NVMLError:
            return None

    def _ask(self, uuid: str, call: Callable[[Any], Any], handle: Any) -> Any:
        try:
            return call(handle)
        except self._nvml.NVMLError as error:
            raise self._fault(uuid, error) from error

    def _fault(self, uuid: str, error: Any) -> DeviceFault:
        nvml = self._nvml
        words = {
            nvml.NVML_ERROR_GPU_IS_LOST: "gpu_is_lost",
            nvml.NVML_ERROR_RESET_REQUIRED: "reset_required",
            nvml.NVML_ERROR_TIMEOUT: "timeout",
        }
        return DeviceFault(uuid, words.get(error.value, f"nvml_error_{error.value}"))


def _same(one: Any, other: Any) -> bool:
    """Whether two handles, which are pointers, are of the same device."""
    return bool(
        ctypes.cast(one, ctypes.c_void_p).value == ctypes.cast(other, ctypes.c_void_p).value
    )


def _serves_mps(pid: int, proc: Path = Path("/proc")) -> bool:
    try:
        # The kernel keeps 15 bytes of a name.
        return (proc / str(pid) / "comm").read_text().startswith("nvidia-cuda-mps")
    except OSError:
        return False


def _load() -> ModuleType:
    # Imported only here: agents with virtual devices, and the CLI, need no NVIDIA package.
    try:
        return importlib.import_module("pynvml")
    except ImportError as error:
        raise DevicesUnavailable(_NO_BINDING) from error

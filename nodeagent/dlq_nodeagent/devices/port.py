"""The port through which the agent sees GPUs; `nvml` and `fake` obey the same contract tests."""

from dataclasses import dataclass
from typing import Protocol

GIB = 1024**3
MIB = 1024**2

# Below this a GPU without processes counts as released (docs/concepts/pause.md, step 4): the driver
# itself keeps some memory per device.
RELEASED_MEMORY_BYTES = 500 * MIB


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU as the master shall know it; constant while the agent runs.

    `index` is the driver's own number at any CUDA_VISIBLE_DEVICES of the agent's environment;
    `uuid` identifies it for jobs. `gpu_type` is the short word users write ("h100-80gb"). `virtual`
    devices exist only because an operator asked for them by name.
    """

    index: int
    uuid: str
    gpu_type: str
    model_name: str
    memory_bytes: int
    virtual: bool
    pci: str = ""
    """`0000:3b:00`, as the kernel's log names it; empty when it has no such place."""
    script: str = ""
    """The file that describes the state of a virtual device; empty: there is none."""
    minor: int | None = None
    """The number of its device file, as the driver tells it; None: it does not."""


@dataclass(frozen=True, slots=True)
class DeviceProcess:
    """A process that holds a compute context; memory is None where the driver does not say."""

    pid: int
    memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class DeviceUsage:
    """The use of a device at this instant."""

    used_memory_bytes: int
    processes: tuple[DeviceProcess, ...]
    mps_pids: tuple[int, ...] = ()
    """Of these processes, the clients of an MPS server and the server itself."""

    def released_below(self, memory_bytes: int) -> bool:
        """The same, with this bound for the memory that the driver keeps for itself."""
        return not self.processes and self.used_memory_bytes < memory_bytes

    @property
    def words(self) -> str:
        pids = ", ".join(str(process.pid) for process in self.processes) or "none"
        mps = ", ".join(map(str, self.mps_pids))
        shared = f"; shared by MPS, which dlq gives to no job: {mps}" if mps else ""
        return f"{self.used_memory_bytes} bytes used, processes: {pids}{shared}"


@dataclass(frozen=True, slots=True)
class DeviceVitals:
    """How a device is at this instant: facts, no verdict. None: the driver does not say.

    `symptoms` are (code, words): `gpu_is_lost`, `row_remap_pending`, `nvlink_down`, ...; the
    master's model/nodes/gpu_health.py decides the actions.
    """

    uuid: str
    symptoms: tuple[tuple[str, str], ...] = ()
    usage: DeviceUsage | None = None
    temperature_celsius: int | None = None
    utilization_percent: int | None = None


@dataclass(frozen=True, slots=True)
class DeviceSample:
    """The load of a device at this instant; None where the driver does not say."""

    uuid: str
    utilization_percent: int | None = None
    power_watts: float | None = None
    clock_mhz: int | None = None


class DevicesUnavailable(Exception):
    """The GPUs of this machine cannot be asked about; the text names the remedy."""


class DeviceFault(Exception):
    """One device does not answer; `reason` is a fixed word such as `gpu_is_lost`."""

    def __init__(self, uuid: str, reason: str) -> None:
        super().__init__(f"device {uuid}: {reason}")
        self.uuid = uuid
        self.reason = reason


class Devices(Protocol):
    """The agent's view of its machine's GPUs. All calls are short and may block on a driver."""

    def devices(self) -> tuple[Device, ...]:
        """Every GPU in the order of its index; the same answer for the life of the agent."""
        ...

    def usage(self, uuid: str) -> DeviceUsage:
        """Used memory and processes of one device.

        Raises KeyError for a uuid that `devices()` does not list, DeviceFault when it does not
        answer.
        """
        ...

    def vitals(self) -> tuple[DeviceVitals, ...]:
        """One entry for each device, in the order of `devices()`; never raises for a broken one."""
        ...

    def samples(self) -> tuple[DeviceSample, ...]:
        """The load of each device, in the order of `devices()`; asked for every second. Never
        raises for a broken one.
        """
        ...

    def next_xid(self) -> tuple[str, int] | None:
        """The uuid and number of a message that the driver has sent since the last call, one at a
        time; None: there is none (any more). Does not wait.
        """
        ...

    def driver_version(self) -> str:
        """The driver's version as it prints it; "virtual" where there is no driver."""
        ...

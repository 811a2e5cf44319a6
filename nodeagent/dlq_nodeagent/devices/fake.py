"""Virtual GPUs, made only by an explicit `--devices fake:8xH100-80GB` and labelled wherever shown.

`fake:8xH100-80GB+busy` names the load of GPUs that jobs hold (`LOADS`); others are at rest. Without
such a name no load is told, as by a driver that does not say.

With `@/path/of/a/file` behind it, that file describes their state and is read at every look. A line
`1|xid_79|fallen off the bus` gives GPU 1 a symptom; `1|temperature|85`, `1|utilization|97`,
`1|power|350` and `1|clock|1755` give figures. `1|process|4711|8589934592` is a process that holds
these bytes of its memory. `*|slow_disk|0.001` is a fault that a check of the node finds
(checks/result.py).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from dlq_nodeagent.devices.port import (
    GIB,
    Device,
    DeviceFault,
    DeviceProcess,
    DeviceSample,
    DeviceUsage,
    DeviceVitals,
)

_FORM = re.compile(
    r"([1-9][0-9]{0,2})x([A-Za-z][A-Za-z0-9]{0,15})-([1-9][0-9]{0,3})GB"
    r"(?:\+(busy|idle))?(?:@(/[^\n]+))?"
)
_AT_REST = {"utilization": 0, "power": 70, "clock": 345}
LOADS = {"busy": {"utilization": 90, "power": 550, "clock": 1755}, "idle": _AT_REST}
"""Figures of a GPU that a job holds, by the name of the load."""
_MAX_DEVICES = 64
_GIVEN_BACK = DeviceUsage(used_memory_bytes=0, processes=())


@dataclass(frozen=True, slots=True)
class VirtualDevices:
    """The devices of `fake:COUNTxMODEL-MEMORYGB+LOAD@SCRIPT`; without SCRIPT nothing is ever
    wrong.
    """

    count: int
    model: str
    memory_gb: int
    script: Path | None = None
    load: str = ""


def parse_virtual(text: str) -> VirtualDevices:
    """Read "8xH100-80GB"; raises ValueError, naming the form, for anything else."""
    match = _FORM.fullmatch(text)
    if not match or int(match.group(1)) > _MAX_DEVICES:
        raise ValueError(
            f"virtual devices are written COUNTxMODEL-MEMORYGB with at most {_MAX_DEVICES} "
            f"devices, like 8xH100-80GB; got {text!r}"
        )
    count, model, memory, load, path = match.groups()
    script = Path(path) if path else None
    return VirtualDevices(int(count), model, int(memory), script, load or "")


@dataclass(slots=True)
class FakeDevices:
    """Virtual devices: nothing computes on them, so they are always healthy and always released.

    Knobs: `usages` and `broken` replace the answer for one uuid, as a driver would change it.
    `in_use` names the GPUs that jobs hold. A script's figures replace those of the load.
    """

    spec: VirtualDevices
    node_name: str
    usages: dict[str, DeviceUsage] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    in_use: Callable[[], frozenset[int]] = frozenset
    _devices: dict[str, Device] = field(init=False)

    def __post_init__(self) -> None:
        devices = map(self._device, range(self.spec.count))
        self._devices = {device.uuid: device for device in devices}

    def devices(self) -> tuple[Device, ...]:
        return tuple(self._devices.values())

    def usage(self, uuid: str) -> DeviceUsage:
        device = self._devices[uuid]
        if uuid in self.broken:
            raise DeviceFault(uuid, self.broken[uuid])
        return self.usages.get(uuid) or self._scripted(device.index).usage or _GIVEN_BACK

    def vitals(self) -> tuple[DeviceVitals, ...]:
        return tuple(self._vitals(device) for device in self.devices())

    def samples(self) -> tuple[DeviceSample, ...]:
        lines, held = self._lines(), self.in_use()
        return tuple(
            self._sample(device, _said(lines, device.index), held) for device in self.devices()
        )

    def _sample(self, device: Device, said: "_Said", held: frozenset[int]) -> DeviceSample:
        if device.uuid in self.broken:
            return DeviceSample(device.uuid)
        load = LOADS.get(self.spec.load, {})
        if load and device.index not in held:
            load = _AT_REST
        figures = {**load, **said.figures}
        power = figures.get("power")
        return DeviceSample(
            device.uuid,
            figures.get("utilization"),
            None if power is None else float(power),
            figures.get("clock"),
        )

    def next_xid(self) -> tuple[str, int] | None:
        """A script's are among the symptoms."""
        return None

    def driver_version(self) -> str:
        return "virtual"

    def _vitals(self, device: Device) -> DeviceVitals:
        if device.uuid in self.broken:
            return DeviceVitals(device.uuid, ((self.broken[device.uuid], ""),))
        said = self._scripted(device.index)
        usage = self.usages.get(device.uuid) or said.usage or _GIVEN_BACK
        return DeviceVitals(
            device.uuid,
            tuple(said.symptoms),
            usage,
            said.figures.get("temperature"),
            said.figures.get("utilization"),
        )

    def _scripted(self, index: int) -> "_Said":
        return _said(self._lines(), index)

    def _lines(self) -> list[str]:
        if self.spec.script is None or not self.spec.script.exists():
            return []
        return self.spec.script.read_text().splitlines()

    def _device(self, index: int) -> Device:
        spec = self.spec
        return Device(
            index=index,
            uuid=f"VIRTUAL-{self.node_name}-{index}",
            gpu_type=f"{spec.model.lower()}-{spec.memory_gb}gb",
            model_name=f"Virtual {spec.model} {spec.memory_gb}GB",
            memory_bytes=spec.memory_gb * GIB,
            virtual=True,
            script="" if spec.script is None else str(spec.script),
        )


_FIGURES = frozenset({"temperature", "utilization", "power", "clock"})


@dataclass(slots=True)
class _Said:
    symptoms: list[tuple[str, str]] = field(default_factory=list)
    figures: dict[str, int] = field(default_factory=dict)
    usage: DeviceUsage | None = None

    def take(self, code: str, rest: list[str]) -> None:
        if code in _FIGURES:
            self.figures[code] = int(rest[0])
        elif code == "process":
            before = self.usage or _GIVEN_BACK
            process = DeviceProcess(int(rest[0]), int(rest[1]))
            self.usage = DeviceUsage(
                before.used_memory_bytes + int(rest[1]), (*before.processes, process)
            )
        else:
            self.symptoms.append((code, rest[0]))


def _said(lines: list[str], index: int) -> _Said:
    """The words of these lines about one GPU."""
    said = _Said()
    for line in lines:
        number, code, *rest = [*line.split("|"), "", ""]
        if number == str(index) and code:
            said.take(code, rest)
    return said

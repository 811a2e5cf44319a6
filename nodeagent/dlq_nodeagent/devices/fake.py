"""Virtual GPUs, made only by an explicit `--devices fake:8xH100-80GB` and labelled wherever shown."""

import re
from dataclasses import dataclass, field

from dlq_nodeagent.devices.port import GIB, Device, DeviceFault, DeviceHealth, DeviceUsage

_FORM = re.compile(r"([1-9][0-9]{0,2})x([A-Za-z][A-Za-z0-9]{0,15})-([1-9][0-9]{0,3})GB")
_MAX_DEVICES = 64
_GIVEN_BACK = DeviceUsage(used_memory_bytes=0, processes=())


@dataclass(frozen=True, slots=True)
class VirtualDevices:
    """What `fake:COUNTxMODEL-MEMORYGB` asks for."""

    count: int
    model: str
    memory_gb: int


def parse_virtual(text: str) -> VirtualDevices:
    """Read "8xH100-80GB"; raises ValueError, naming the form, for anything else."""
    match = _FORM.fullmatch(text)
    if not match or int(match.group(1)) > _MAX_DEVICES:
        raise ValueError(
            f"virtual devices are written COUNTxMODEL-MEMORYGB with at most {_MAX_DEVICES} devices, "
            f"like 8xH100-80GB; got {text!r}"
        )
    return VirtualDevices(int(match.group(1)), match.group(2), int(match.group(3)))


@dataclass(slots=True)
class FakeDevices:
    """Virtual devices: nothing computes on them, so they are always healthy and always released.

    Knobs: `usages` and `broken` replace the answer for one uuid, as a driver would change it.
    """

    spec: VirtualDevices
    node_name: str
    usages: dict[str, DeviceUsage] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)

    def devices(self) -> tuple[Device, ...]:
        """See the port."""
        return tuple(self._device(index) for index in range(self.spec.count))

    def usage(self, uuid: str) -> DeviceUsage:
        """See the port."""
        if uuid not in {device.uuid for device in self.devices()}:
            raise KeyError(uuid)
        if uuid in self.broken:
            raise DeviceFault(uuid, self.broken[uuid])
        return self.usages.get(uuid, _GIVEN_BACK)

    def health(self) -> tuple[DeviceHealth, ...]:
        """See the port."""
        return tuple(
            DeviceHealth(
                uuid=device.uuid,
                healthy=device.uuid not in self.broken,
                reason=self.broken.get(device.uuid, ""),
            )
            for device in self.devices()
        )

    def driver_version(self) -> str:
        """See the port."""
        return "virtual"

    def _device(self, index: int) -> Device:
        spec = self.spec
        return Device(
            index=index,
            uuid=f"VIRTUAL-{self.node_name}-{index}",
            gpu_type=f"{spec.model.lower()}-{spec.memory_gb}gb",
            model_name=f"Virtual {spec.model} {spec.memory_gb}GB",
            memory_bytes=spec.memory_gb * GIB,
            virtual=True,
        )

"""A machine without GPUs, asked for by name."""

from dlq_nodeagent.devices.port import Device, DeviceHealth, DeviceUsage, DeviceVitals


class NoDevices:
    """No device at all; jobs that ask for CPUs only can still run here."""

    def devices(self) -> tuple[Device, ...]:
        """See the port."""
        return ()

    def usage(self, uuid: str) -> DeviceUsage:
        """See the port."""
        raise KeyError(uuid)

    def health(self) -> tuple[DeviceHealth, ...]:
        """See the port."""
        return ()

    def vitals(self) -> tuple[DeviceVitals, ...]:
        """See the port."""
        return ()

    def next_xid(self) -> tuple[str, int] | None:
        """See the port."""
        return None

    def driver_version(self) -> str:
        """See the port."""
        return "none"

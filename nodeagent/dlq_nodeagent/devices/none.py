"""A machine without GPUs, asked for by name."""

from dlq_nodeagent.devices.port import Device, DeviceHealth, DeviceUsage


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

    def driver_version(self) -> str:
        """See the port."""
        return "none"

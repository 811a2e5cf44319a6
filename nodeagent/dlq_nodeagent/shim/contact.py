"""The contact file: when the agent last spoke with the master, for shims that outlive it.

64 bytes, written in place: 8 "DLQCONT1", 8 instant, 8 the same instant, 36 boot id, padding. The
instant is CLOCK_BOOTTIME in nanoseconds, little endian; it stands there twice so that a reader
sees a torn write. shim/contact.c reads it.
"""

import mmap
import os
import struct
from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

_MAGIC = b"DLQCONT1"
_LAYOUT = struct.Struct("<8sqq36s4x")
_INSTANTS = struct.Struct("<qq")


def read_boot_id() -> str:
    """This boot's id; another one means that nothing from before is alive."""
    return BOOT_ID.read_text().strip()


class ContactFile:
    """Holds one instant that only ever moves forward within a boot. One writer: the agent."""

    def __init__(self, path: Path) -> None:
        """Open or make the file. An instant of this boot is kept; one of another boot is dropped.

        A new file holds no contact: the shim starts nothing before the first `renew`.
        """
        self._boot_id = read_boot_id()
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(path, flags, 0o600)
        try:
            if os.fstat(descriptor).st_size != _LAYOUT.size:
                os.ftruncate(descriptor, _LAYOUT.size)
            self._map = mmap.mmap(descriptor, _LAYOUT.size)
        finally:
            os.close(descriptor)
        if self._stored() is None:
            self._map[:] = _LAYOUT.pack(_MAGIC, -1, -1, self._boot_id.encode())

    def renew(self, boottime_s: float) -> None:
        """Store the instant at which the last answered heartbeat was sent (CLOCK_BOOTTIME).

        An earlier instant than the stored one is ignored: answers may arrive out of order.
        """
        instant = int(boottime_s * 1e9)
        stored = self._stored()
        if stored is None or instant > stored:
            _INSTANTS.pack_into(self._map, len(_MAGIC), instant, instant)

    def boottime_s(self) -> float | None:
        """The stored instant; None before the first contact of this boot."""
        stored = self._stored()
        return None if stored is None or stored < 0 else stored / 1e9

    def close(self) -> None:
        self._map.close()

    def _stored(self) -> int | None:
        magic, instant, again, boot_id = _LAYOUT.unpack(self._map[:])
        good = magic == _MAGIC and instant == again and boot_id == self._boot_id.encode()
        return int(instant) if good else None

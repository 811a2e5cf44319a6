"""CUDA's driver by ctypes: devices, memory, and the checkpoints of processes.

The names are those of the driver's own interface (cuda.h). No package of the vendor is needed.
"""

from __future__ import annotations

import ctypes
import uuid
from dataclasses import dataclass, field

LIBRARY = "libcuda.so.1"
NO_DEVICE = 100
_PIECE = 8 << 30  # bytes that are asked for at once
_SAMPLE = 4096  # bytes at either end of a piece that are looked at


class CudaError(Exception):
    """The driver refused a call; `code` is its CUresult."""

    def __init__(self, name: str, code: int) -> None:
        super().__init__(f"{name}: CUDA error {code}")
        self.code = code


class NoCuda(Exception):
    """There is no library of CUDA's driver."""


@dataclass
class Driver:
    """The driver, opened for this process."""

    library: ctypes.CDLL = field(default_factory=lambda: _opened())
    pieces: list[tuple[int, int]] = field(default_factory=list)
    """Address and size of what this process holds."""

    def call(self, name: str, *arguments: object) -> None:
        """Call one function. Raises CudaError; AttributeError where the driver is too old."""
        code = int(getattr(self.library, name)(*arguments))
        if code:
            raise CudaError(name, code)

    def has(self, name: str) -> bool:
        """Whether the driver has this function."""
        return hasattr(self.library, name)

    def version(self) -> int:
        """The newest CUDA that the driver runs, as 1000 * major + 10 * minor."""
        found = ctypes.c_int(0)
        self.call("cuDriverGetVersion", ctypes.byref(found))
        return found.value

    def count(self) -> int:
        """GPUs that this process may use, as CUDA_VISIBLE_DEVICES leaves them."""
        try:
            self.call("cuInit", 0)
        except CudaError as error:
            if error.code == NO_DEVICE:
                return 0
            raise
        found = ctypes.c_int(0)
        self.call("cuDeviceGetCount", ctypes.byref(found))
        return found.value

    def uuids(self) -> list[str]:
        """The uuids of these GPUs, as NVML writes them. `count` comes first."""
        found = []
        for ordinal in range(self.count()):
            raw = (ctypes.c_ubyte * 16)()
            self.call("cuDeviceGetUuid", raw, self._device(ordinal))
            found.append(f"GPU-{uuid.UUID(bytes=bytes(raw))}")
        return found

    def use(self, ordinal: int = 0) -> None:
        """Make a context on one of them, the current one of this thread."""
        self.call("cuInit", 0)
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device(ordinal))
        self.call("cuCtxSetCurrent", context)

    def memory(self) -> tuple[int, int]:
        """Free bytes and all bytes of the current GPU."""
        free, total = ctypes.c_size_t(0), ctypes.c_size_t(0)
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def hold(self, nbytes: int, fill: int = 0x5A) -> None:
        """Take so much memory, and write to all of it."""
        while nbytes > 0:
            size = min(nbytes, _PIECE)
            address = ctypes.c_uint64(0)
            self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
            self.pieces.append((address.value, size))
            self.call("cuMemsetD8_v2", address, ctypes.c_ubyte(fill), ctypes.c_size_t(size))
            nbytes -= size
        self.call("cuCtxSynchronize")

    def is_whole(self, fill: int = 0x5A) -> bool:
        """Whether both ends of every piece still have what was written."""
        for address, size in self.pieces:
            length = min(_SAMPLE, size)
            for at in (address, address + size - length):
                seen = ctypes.create_string_buffer(length)
                self.call("cuMemcpyDtoH_v2", seen, ctypes.c_uint64(at), ctypes.c_size_t(length))
                if seen.raw != bytes([fill]) * length:
                    return False
        return True

    def _device(self, ordinal: int) -> ctypes.c_int:
        device = ctypes.c_int(0)
        self.call("cuDeviceGet", ctypes.byref(device), ordinal)
        return device


def _opened() -> ctypes.CDLL:
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise NoCuda(str(error)) from None

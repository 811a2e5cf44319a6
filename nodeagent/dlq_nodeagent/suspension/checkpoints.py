"""The checkpoint calls of CUDA's driver, by ctypes: a process leaves its GPUs, and comes back.

The calls are those of cuda.h (cuCheckpointProcess...), in drivers from 570 on. With CUDA 13 (580) a
process may come back to other GPUs of the same type. The content of GPU memory goes to host memory.
"""

import ctypes
import uuid
from collections.abc import Sequence
from enum import IntEnum
from typing import Protocol

LIBRARY = "libcuda.so.1"
REMAPS_FROM = 13_000  # the driver's newest CUDA, from which a process may come back elsewhere
_CALLS = ("Lock", "Checkpoint", "Restore", "Unlock", "GetState")


class ProcessState(IntEnum):
    """CUprocessState."""

    RUNNING = 0
    LOCKED = 1
    CHECKPOINTED = 2
    FAILED = 3


class DriverFault(Exception):
    """The driver refused a call; `code` is its CUresult."""

    def __init__(self, call: str, pid: int, code: int) -> None:
        super().__init__(f"{call} of process {pid}: CUDA error {code}")
        self.code = code


class DriverSilent(DriverFault):
    """The driver reports nothing about a live process that uses CUDA."""

    def __init__(self, pid: int) -> None:
        super().__init__("getstate", pid, 0)
        self.args = (f"the driver says nothing of process {pid}",)


class Checkpoints(Protocol):
    """The driver's calls, for one process each; all but `state` raise DriverFault."""

    @property
    def remaps(self) -> bool:
        """Whether a process may come back to other GPUs."""
        ...

    def state(self, pid: int) -> ProcessState | None:
        """The state of a process; None: it does not use CUDA."""
        ...

    def lock(self, pid: int, timeout_s: float) -> None:
        """Stop new work of the process on its GPUs, and wait for the present work."""
        ...

    def checkpoint(self, pid: int) -> None:
        """Move its GPU memory to the host, and take it off its GPUs."""
        ...

    def restore(self, pid: int, pairs: Sequence[tuple[str, str]]) -> None:
        """Give it its GPU memory back. `pairs`: uuids, from and to; all of its GPUs or none."""
        ...

    def unlock(self, pid: int) -> None:
        """Let it work again."""
        ...


class _LockArgs(ctypes.Structure):
    _fields_ = (
        ("timeout_ms", ctypes.c_uint),
        ("reserved0", ctypes.c_uint),
        ("reserved1", ctypes.c_uint64 * 7),
    )


class _Pair(ctypes.Structure):
    _fields_ = (("old", ctypes.c_ubyte * 16), ("new", ctypes.c_ubyte * 16))


class _RestoreArgs(ctypes.Structure):
    _fields_ = (
        ("pairs", ctypes.POINTER(_Pair)),
        ("count", ctypes.c_uint),
        ("reserved", ctypes.c_char * (52 - ctypes.sizeof(ctypes.c_void_p))),
        ("reserved1", ctypes.c_uint64),
    )


class NoCheckpoints(Exception):
    """The driver cannot make checkpoints; the text says why."""


class DriverCheckpoints:
    """The real driver, or another one that LD_LIBRARY_PATH finds."""

    def __init__(self) -> None:
        """Raises NoCheckpoints."""
        try:
            self._library = ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise NoCheckpoints(f"no CUDA driver: {error}") from None
        for name in _CALLS:
            if not hasattr(self._library, f"cuCheckpointProcess{name}"):
                raise NoCheckpoints("the driver is older than 570")
        code = int(self._library.cuInit(0))
        if code:
            raise NoCheckpoints(f"cuInit: CUDA error {code}")
        version = ctypes.c_int(0)
        self._library.cuDriverGetVersion(ctypes.byref(version))
        self.remaps = version.value >= REMAPS_FROM

    def state(self, pid: int) -> ProcessState | None:
        found = ctypes.c_int(0)
        code = self._library.cuCheckpointProcessGetState(pid, ctypes.byref(found))
        return None if code else ProcessState(found.value)

    def lock(self, pid: int, timeout_s: float) -> None:
        arguments = _LockArgs(timeout_ms=max(1, round(timeout_s * 1000)))
        self._call("Lock", pid, ctypes.byref(arguments))

    def checkpoint(self, pid: int) -> None:
        self._call("Checkpoint", pid, None)

    def restore(self, pid: int, pairs: Sequence[tuple[str, str]]) -> None:
        told = (_Pair * len(pairs))(*[_Pair(_raw(old), _raw(new)) for old, new in pairs])
        arguments = _RestoreArgs(pairs=told, count=len(pairs))
        self._call("Restore", pid, ctypes.byref(arguments) if pairs else None)

    def unlock(self, pid: int) -> None:
        self._call("Unlock", pid, None)

    def _call(self, name: str, pid: int, arguments: object) -> None:
        code = int(getattr(self._library, f"cuCheckpointProcess{name}")(pid, arguments))
        if code:
            raise DriverFault(name.lower(), pid, code)


def _raw(name: str) -> "ctypes.Array[ctypes.c_ubyte]":
    """The 16 bytes of "GPU-1f0c3c2a-..."."""
    return (ctypes.c_ubyte * 16)(*uuid.UUID(name.removeprefix("GPU-")).bytes)

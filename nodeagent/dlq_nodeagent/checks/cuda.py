"""The GPUs that a check was given, by CUDA's driver alone: memory, copies, and waits.

The names of functions are those of cuda.h. Contexts are the primary ones, which cuBLAS and NCCL
use too. An error of the driver is a word on the node: its jobs would meet the same one. A full
GPU is none, since another program may hold its memory.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

from dlq_nodeagent.checks.libraries import CUDA, opened
from dlq_nodeagent.checks.result import NotMeasured, WrongResult

_OUT_OF_MEMORY = 2
_NON_BLOCKING = 1  # a stream that does not wait for the default one


class GivenGpus:
    """So many GPUs, by their place among those of the job. One thread at a time uses them."""

    def __init__(self, library: ctypes.CDLL, count: int) -> None:
        self._library = library
        self.count = count
        self._contexts: dict[int, c_void_p] = {}
        self._current = -1  # for words: the GPU of the last call

    def call(self, name: str, *arguments: object) -> None:
        """Call one function. WrongResult for an error, with its name; NotMeasured for a GPU whose
        memory is full, and for a driver without this function.
        """
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise NotMeasured(f"the driver has no {name}") from None
        code = int(function(*arguments))
        if code == _OUT_OF_MEMORY:
            raise NotMeasured(f"GPU {self._current} has no memory left for a check")
        if code:
            place = f"GPU {self._current}: " if self._current >= 0 else ""
            raise WrongResult(f"{place}{name}: {self._name_of(code)}")

    def use(self, index: int) -> None:
        """Later calls of this thread are about this GPU."""
        self._current = index
        if index not in self._contexts:
            device, context = c_int(0), c_void_p()
            self.call("cuDeviceGet", byref(device), c_int(index))
            self.call("cuDevicePrimaryCtxRetain", byref(context), device)
            self._contexts[index] = context
        self.call("cuCtxSetCurrent", self._contexts[index])

    def memory(self, nbytes: int) -> c_uint64:
        """So many bytes of it."""
        address = c_uint64(0)
        self.call("cuMemAlloc_v2", byref(address), c_size_t(nbytes))
        return address

    def give_back(self, *addresses: c_uint64) -> None:
        """Let go of them."""
        for address in addresses:
            self.call("cuMemFree_v2", address)

    def fill(self, address: c_uint64, word: int, count: int) -> None:
        """So many words of 32 bits, all the same."""
        self.call("cuMemsetD32_v2", address, c_uint(word), c_size_t(count))

    def write(self, address: c_uint64, data: Any) -> None:
        """An array of numpy, from the host."""
        self.call("cuMemcpyHtoD_v2", address, c_void_p(data.ctypes.data), c_size_t(data.nbytes))

    def read(self, address: c_uint64, into: Any) -> None:
        """The same way back."""
        self.call("cuMemcpyDtoH_v2", c_void_p(into.ctypes.data), address, c_size_t(into.nbytes))

    def copy(self, to: c_uint64, source: c_uint64, nbytes: int) -> None:
        """Within the GPU. It is over after `wait`."""
        self.call("cuMemcpyDtoD_v2", to, source, c_size_t(nbytes))

    def wait(self) -> None:
        """Until the GPU has done all."""
        self.call("cuCtxSynchronize")

    def stream(self) -> c_void_p:
        """An order of work of its own."""
        found = c_void_p()
        self.call("cuStreamCreate", byref(found), c_uint(_NON_BLOCKING))
        return found

    def wait_for(self, stream: c_void_p) -> None:
        """Until the work of this stream is done."""
        self.call("cuStreamSynchronize", stream)

    def _name_of(self, code: int) -> str:
        name = c_char_p()
        known = getattr(self._library, "cuGetErrorName", None)
        if known is None or known(c_int(code), byref(name)) or not name.value:
            return f"CUDA error {code}"
        return name.value.decode("ascii", "replace").removeprefix("CUDA_")


def asked_count(environment: Mapping[str, str] = os.environ) -> int:
    """How many real GPUs this job was given. A job on virtual ones has none."""
    return len([word for word in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if word])


def given(environment: Mapping[str, str] = os.environ) -> GivenGpus | None:
    """The real GPUs of this job; None: it has none. WrongResult if CUDA sees fewer of them;
    NotMeasured if the host has no library of the driver.
    """
    asked = asked_count(environment)
    if not asked:
        return None
    library, seen = opened("libcuda", CUDA), c_int(0)
    gpus = GivenGpus(library, asked)
    gpus.call("cuInit", c_uint(0))
    gpus.call("cuDeviceGetCount", byref(seen))
    if seen.value != asked:
        raise WrongResult(f"CUDA sees {seen.value} of {asked} GPUs")
    return gpus

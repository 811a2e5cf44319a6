"""An all-reduce of all GPUs of two nodes by NCCL, its sums compared and its ends watched.

Each node is one process with one rank for each GPU. The names of functions are those of nccl.h.
The work is done in a thread, since a call of NCCL may never come back. The waiting thread hears
from the other node meanwhile, and names the step that hangs.
"""

from __future__ import annotations

import ctypes
import select
import socket
import threading
import time
from collections.abc import Callable
from ctypes import Structure, byref, c_char, c_char_p, c_int, c_size_t, c_uint64, c_void_p
from typing import Any

from dlq_nodeagent.checks.cuda import GivenGpus
from dlq_nodeagent.checks.result import Figure, NotMeasured, WrongResult

_BYTES = 256 << 20  # that each GPU gives to the sum
_ROUNDS = 8
_LOOK_S = 0.05
_LEAVES_S = 1.0  # a node that has ended shows it on the line within this
_FLOAT32, _SUM = 7, 0  # ncclFloat32, ncclSum
_OURS = frozenset({4, 5})  # invalid arguments and usage: no word on a node
_REMOTE, _GOES_ON = 6, 7  # the other node has left; a call that is not over
_DONE = b"."
_ONE = 0x3F800000  # the bits of 1.0


class NcclError(WrongResult):
    """NCCL has failed: for this node, or because the other one has just left."""


class UniqueId(Structure):
    """The word by which the ranks of one communicator find each other."""

    _fields_ = [("internal", c_char * 128)]


class Nccl:
    """The library, with the GPUs of this node."""

    def __init__(self, library: ctypes.CDLL, gpus: GivenGpus) -> None:
        self.library, self.gpus = library, gpus
        self._comms: list[c_void_p] = []
        library.ncclCommInitRank.argtypes = [c_void_p, c_int, UniqueId, c_int]
        library.ncclGetErrorString.restype = c_char_p

    def version(self) -> str:
        """As 2.21.5."""
        found = c_int(0)
        self.call("ncclGetVersion", byref(found))
        return f"{found.value // 10_000}.{found.value // 100 % 100}.{found.value % 100}"

    def call(self, name: str, *arguments: object) -> None:
        """Call one function. WrongResult for an error of the node; NotMeasured for others."""
        self.judge(name, int(getattr(self.library, name)(*arguments)))

    def judge(self, name: str, code: int) -> None:
        """Raise what this code of a function means."""
        if not code or code == _GOES_ON:
            return
        told = self.library.ncclGetErrorString(c_int(code)) or b""
        words = f"{name}: {told.decode('ascii', 'replace') or f'NCCL error {code}'}"
        raise NotMeasured(words) if code in _OURS or code == _REMOTE else NcclError(words)

    def unique_id(self) -> bytes:
        """A new one."""
        found = UniqueId()
        self.call("ncclGetUniqueId", byref(found))
        return ctypes.string_at(byref(found), ctypes.sizeof(found))

    def join(self, ident: bytes, node: int, nodes: int) -> None:
        """Become ranks of a communicator. The other node does the same now."""
        word, count = UniqueId.from_buffer_copy(ident), self.gpus.count
        comms = [c_void_p() for _ in range(count)]
        self.call("ncclGroupStart")
        for index, comm in enumerate(comms):
            self.gpus.use(index)
            ranks, rank = c_int(nodes * count), c_int(node * count + index)
            self.call("ncclCommInitRank", byref(comm), ranks, word, rank)
        self.call("ncclGroupEnd")
        self._comms = comms

    def all_reduce(self, buffers: list[tuple[c_uint64, c_uint64, c_void_p]], count: int) -> None:
        """A sum over all GPUs of both nodes: from the first of each to the second, by a stream."""
        self.call("ncclGroupStart")
        for index, (own, total, stream) in enumerate(buffers):
            self.gpus.use(index)
            words = (own, total, c_size_t(count), c_int(_FLOAT32), c_int(_SUM))
            self.call("ncclAllReduce", *words, self._comms[index], stream)
        self.call("ncclGroupEnd")
        for index, (_, _, stream) in enumerate(buffers):
            self.gpus.use(index)
            self.gpus.wait_for(stream)

    def look(self) -> None:
        """Raise the error that NCCL has met in the background. May be called from any thread."""
        for comm in self._comms:
            code = c_int(0)
            self.call("ncclCommGetAsyncError", comm, byref(code))
            self.judge("NCCL", code.value)


def measured(
    nccl: Nccl, version: str, line: socket.socket, node: int, patience_s: float, part: float = 1.0
) -> Figure:
    """The bandwidth of the busiest link in GB/s, as `busbw` of nccl-tests. `line` leads to the
    other node. Raises WrongResult and NotMeasured; no step takes longer than `patience_s`.
    """
    stages = Stages()
    try:
        took_s = watched(
            stages, lambda: _run(nccl, line, node, part, stages), line, nccl.look, patience_s
        )
    except NcclError:
        if _is_over(line, _LEAVES_S):
            raise NotMeasured("the other node has left") from None
        raise
    _part(line, patience_s)
    ranks = 2 * nccl.gpus.count
    nbytes = _ROUNDS * 4 * _count(part) * 2.0 * (ranks - 1) / ranks
    figure = nbytes / 1e9 / max(took_s, 1e-9)
    return Figure(value=figure, unit="GB/s", on=f"NCCL {version}, {ranks} GPUs")


class Stages:
    """The step that a thread is in, and since when."""

    def __init__(self) -> None:
        self.name, self.since_s = "", time.perf_counter()

    def enter(self, name: str) -> None:
        """The one before has ended."""
        self.name, self.since_s = name, time.perf_counter()


def watched(
    stages: Stages,
    work: Callable[[], float],
    line: socket.socket,
    look: Callable[[], None],
    patience_s: float,
) -> float:
    """The answer of work in a thread of its own. WrongResult for a step that takes too long;
    NotMeasured if the other node leaves meanwhile.
    """
    found: list[float] = []
    raised: list[Exception] = []

    def run() -> None:
        try:
            found.append(work())
        except (WrongResult, NotMeasured) as error:
            raised.append(error)
        except (OSError, AttributeError) as error:  # of the line; of a library without a function
            raised.append(NotMeasured(str(error)))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while True:
        thread.join(_LOOK_S)
        if raised:
            raise raised[0]
        if found:
            return found[0]
        if not thread.is_alive():
            raise NotMeasured("no result")
        if _is_over(line):
            raise NotMeasured("the other node has left")
        look()
        if time.perf_counter() - stages.since_s > patience_s:
            raise WrongResult(f"{stages.name} did not end within {patience_s:g} s: it hangs")


# --- helpers, in order of use ---------------------------------------------------------------------


def _run(nccl: Nccl, line: socket.socket, node: int, part: float, stages: Stages) -> float:
    """Seconds of all rounds but a first one. The sum of each is compared."""
    gpus, count = nccl.gpus, _count(part)
    stages.enter("ncclGetUniqueId")
    ident = nccl.unique_id() if node == 0 else b""
    if node == 0:
        line.sendall(ident)
    else:
        ident = line.recv(ctypes.sizeof(UniqueId), socket.MSG_WAITALL)
        if len(ident) < ctypes.sizeof(UniqueId):
            raise NotMeasured("the other node has left")
    stages.enter("ncclCommInitRank")
    nccl.join(ident, node, 2)
    buffers = [_buffers(gpus, index, count) for index in range(gpus.count)]
    took_s = 0.0
    for number in range(_ROUNDS + 1):
        stages.enter(f"all-reduce {number} over NCCL")
        began_s = time.perf_counter()
        nccl.all_reduce(buffers, count)
        took_s += time.perf_counter() - began_s if number else 0.0
        _compare(gpus, buffers, count)
    return took_s


def _count(part: float) -> int:
    return max(1, int(_BYTES * part) // 4)


def _buffers(gpus: GivenGpus, index: int, count: int) -> tuple[c_uint64, c_uint64, c_void_p]:
    """Numbers that each GPU gives, and a place for their sum."""
    gpus.use(index)
    own, total, stream = gpus.memory(4 * count), gpus.memory(4 * count), gpus.stream()
    gpus.fill(own, _ONE, count)
    gpus.fill(total, 0, count)
    gpus.wait()
    return own, total, stream


def _compare(
    gpus: GivenGpus, buffers: list[tuple[c_uint64, c_uint64, c_void_p]], count: int
) -> None:
    """Each GPU gave ones, so each sum is the number of GPUs. The places are emptied again."""
    import numpy as np

    seen: Any = np.empty(count, dtype=np.float32)
    for index, (_, total, _) in enumerate(buffers):
        gpus.use(index)
        gpus.read(total, seen)
        wrong = np.count_nonzero(seen != 2.0 * gpus.count)
        if wrong:
            raise WrongResult(f"GPU {index}: {wrong} of {count} sums over NCCL are wrong")
        gpus.fill(total, 0, count)
        gpus.wait()


def _is_over(line: socket.socket, wait_s: float = 0.0) -> bool:
    """Whether the other node has closed it. A word that waits there is none of that."""
    if not select.select([line], [], [], wait_s)[0]:
        return False
    try:
        return not line.recv(1, socket.MSG_PEEK)
    except OSError:
        return True


def _part(line: socket.socket, patience_s: float) -> None:
    """Both have measured: neither takes the other's end for a loss."""
    line.settimeout(patience_s)
    try:
        line.sendall(_DONE)
        if line.recv(1) == _DONE:
            return
    except OSError:
        pass
    raise NotMeasured("the other node has no result")

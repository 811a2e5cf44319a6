"""A job of one or more ranks that calls NCCL, by PyTorch; or its stub, for the stand-in `numpy`.

    python -m benchmarks.gpu.jobs.collect NOTES MEET CALLS PAIRS

RANK and WORLD_SIZE say which rank it is; MEET is a file where they meet. Rank 0 notes `called`
after CALLS all-reduces of as many bytes each, and `replayed` after a CUDA graph with one more. It
notes `paired` with the seconds of PAIRS pairs of steps, one without recording and one with. Without
the recorder there is none to switch on, and both are plain.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from benchmarks.gpu.jobs.notes import Notes
from benchmarks.gpu.jobs.work import SPOILED, VARIABLE

COUNT = 1 << 20  # elements of two bytes in each all-reduce
REPLAYS = 10
WARM = 10  # steps that no pair counts
MODE_AT = 12  # of the control file (docs/reference/profiler-files.md)


class Nccl(Protocol):
    """Collectives on this rank's GPU."""

    versions: dict[str, str]

    def all_reduce(self) -> bool:
        """Sum COUNT elements over all ranks; whether the sum is right."""
        ...

    def replay(self, times: int) -> bool | None:
        """An addition and the same as a CUDA graph, launched so often; None: there are no graphs.
        Every launch counts, and the sum has the addition: so it is seen whether the graph ran.
        """
        ...

    def step(self) -> None:
        """A training step: matrix work, an all-reduce of its result, and a wait for both."""
        ...

    def close(self) -> None:
        """Leave the group."""
        ...


def main() -> None:
    """Call, replay, measure."""
    notes, meet = Notes(sys.argv[1]), Path(sys.argv[2])
    calls, pairs = int(sys.argv[3]), int(sys.argv[4])
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    nccl: Nccl = StubNccl() if os.environ.get(VARIABLE) else TorchNccl(meet, rank, size)
    take: Callable[..., None] = notes.take if rank == 0 else lambda *_words, **_facts: None
    right = sum(nccl.all_reduce() for _ in range(calls)) == calls
    plugin, api = _plugin()
    facts = {"versions": nccl.versions, "plugin": plugin, "api": api}
    take("called", calls=calls, bytes=2 * COUNT, right=right, **facts)
    if calls:
        take("replayed", replays=REPLAYS, right=nccl.replay(REPLAYS))
    if pairs:
        off, on = _pairs(nccl.step, pairs)
        take("paired", off=off, on=on)
    nccl.close()


def _pairs(step: Callable[[], None], pairs: int) -> tuple[list[float], list[float]]:
    """Seconds without recording and with it; either comes first in turn."""
    where = os.environ.get("DLQ_PROF_DIR")
    control = os.open(Path(where, "control"), os.O_RDWR) if where else None
    took: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(WARM):
        step()
    for pair in range(pairs):
        for recorded in (False, True) if pair % 2 else (True, False):
            if control is not None:
                os.pwrite(control, recorded.to_bytes(4, "little"), MODE_AT)
            begun_s = time.perf_counter()
            step()
            took[recorded].append(time.perf_counter() - begun_s)
    if control is not None:
        os.close(control)
    return took[False], took[True]


def _plugin() -> tuple[str, int]:
    """The file of our plugin if NCCL has loaded it, and the version of the interface by which."""
    path = os.environ.get("NCCL_PROFILER_PLUGIN", "")
    # The kernel names the file itself, whatever links lead to it.
    if not path or os.path.realpath(path) not in Path("/proc/self/maps").read_text():
        return "", 0
    try:
        version = ctypes.c_int.in_dll(ctypes.CDLL(path), "dlqprof_nccl_version")
    except (OSError, ValueError):  # another's plugin
        return path, 0
    return path, version.value


class TorchNccl:
    """NCCL as PyTorch brings it."""

    def __init__(self, meet: Path, rank: int, size: int) -> None:
        import torch
        import torch.distributed as dist

        self._torch: Any = torch
        self._dist: Any = dist
        self._size = size
        torch.cuda.set_device(rank)
        dist.init_process_group(
            "nccl", store=dist.FileStore(str(meet), size), rank=rank, world_size=size
        )
        self._data = torch.empty(COUNT, dtype=torch.float16, device="cuda")
        self._square = torch.randn(4096, 4096, dtype=torch.bfloat16, device="cuda")
        self.versions = {
            "torch": torch.__version__,
            "cuda": str(torch.version.cuda),
            "nccl": ".".join(map(str, torch.cuda.nccl.version())),
        }

    def all_reduce(self) -> bool:
        """See the port."""
        self._data.fill_(1)
        self._dist.all_reduce(self._data)
        return bool((self._data == self._size).all().item())

    def replay(self, times: int) -> bool | None:
        """See the port."""
        graph = self._torch.cuda.CUDAGraph()
        launches = self._torch.zeros(1, dtype=self._torch.int32, device="cuda")
        self._torch.cuda.synchronize()
        # Other threads of PyTorch ask the driver meanwhile, and may.
        with self._torch.cuda.graph(graph, capture_error_mode="thread_local"):
            launches.add_(1)
            self._data.add_(1)
            self._dist.all_reduce(self._data)
        for _ in range(times):
            self._data.fill_(1)
            graph.replay()
        self._torch.cuda.synchronize()
        summed = bool((self._data == 2 * self._size).all().item())
        right = summed and int(launches.item()) == times
        del graph  # the group cannot end while a graph has its calls
        return right

    def step(self) -> None:
        """See the port."""
        made = self._square
        for _ in range(16):
            made = made @ self._square
        self._dist.all_reduce(made)
        self._torch.cuda.synchronize()

    def close(self) -> None:
        """See the port."""
        self._dist.destroy_process_group()


class StubNccl:
    """A libnccl.so.2 that does nothing (profiler/tests/stub_nccl.c), but starts the plugin."""

    def __init__(self) -> None:
        import ctypes

        import numpy

        self._library = ctypes.CDLL("libnccl.so.2")
        self._comm = (ctypes.c_int * 2)(1, 0)
        self._count = ctypes.c_size_t(COUNT)
        self._square: Any = numpy.ones((64, 64))
        self._spoiled = os.environ.get(SPOILED, "").split()
        self._dropped = False
        self.versions = {"nccl": "stand-in"}
        self._library.stubStartPlugin()

    def all_reduce(self) -> bool:
        """See the port."""
        if "all-reduce" in self._spoiled and not self._dropped:
            self._dropped = True
            return True
        return not self._library.ncclAllReduce(None, None, self._count, 6, 0, self._comm, None)

    def replay(self, times: int) -> bool | None:
        """A capture that the plugin is told of; no graph."""
        if "capture" not in self._spoiled:
            self._library.stubCapture(self._count)
        return None

    def step(self) -> None:
        """See the port."""
        self._square @ self._square
        self.all_reduce()
        if "slow" in self._spoiled and self._is_recorded():
            for _ in range(20):
                self._square @ self._square

    def _is_recorded(self) -> bool:
        where = os.environ.get("DLQ_PROF_DIR")
        return bool(where and Path(where, "control").read_bytes()[MODE_AT])

    def close(self) -> None:
        """See the port."""


if __name__ == "__main__":
    main()

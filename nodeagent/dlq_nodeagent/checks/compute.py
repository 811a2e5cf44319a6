"""Memory bandwidth and matrix products, of each GPU that is given, or of the cores.

On GPUs the copies are those of CUDA's driver, and the products those of cuBLAS. Torch computes them
where its own cuBLAS is all there is. A node with GPUs is never judged by its cores.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from ctypes import byref, c_float, c_int, c_uint64, c_void_p
from importlib import import_module
from typing import Any

from dlq_nodeagent.checks import cuda
from dlq_nodeagent.checks.cuda import GivenGpus
from dlq_nodeagent.checks.libraries import CUBLAS, opened
from dlq_nodeagent.checks.result import Figure, NotMeasured, WrongResult

_MIB = 1 << 20
_COPIED = {"cpu": 32 * _MIB, "cuda": 1024 * _MIB}  # bytes
_BLOCK = 64 * _MIB  # of them that is written and read at once
_SIDE = {"cpu": 512, "cuda": 8192}  # of a matrix
_ROUGH = 1e-2  # the part by which two equal products may differ
_NO_TRANSPOSE = 0  # CUBLAS_OP_N


def memory(seconds: float, part: float = 1.0) -> Figure:
    """Bytes read and written in a second, in GB/s; of several GPUs the slowest. WrongResult for
    bytes that come out otherwise. `part` of the usual size is used on GPUs.
    """
    gpus = cuda.given()
    if gpus is None:
        return Figure(value=rate(_copy_numpy(), seconds) / 1e9, unit="GB/s", on="numpy")
    nbytes = _whole(_COPIED["cuda"] * part, 4)
    rates = [_copied(gpus, index, nbytes, seconds) for index in range(gpus.count)]
    return _slowest(rates, "GB/s", "CUDA")


def matrix(seconds: float, part: float = 1.0) -> Figure:
    """Operations in GFLOP/s; of several GPUs the slowest. Raises WrongResult for a product that
    differs from the first one. `part` of the usual side is used on GPUs.
    """
    gpus = cuda.given()
    if gpus is None:
        return Figure(value=rate(_multiply_numpy(), seconds) / 1e9, unit="GFLOP/s", on="numpy")
    side = _whole(_SIDE["cuda"] * part, 8)
    try:
        library = opened("cuBLAS", CUBLAS)
    except NotMeasured as missing:
        return _by_torch(missing, gpus.count, side, seconds)
    rates = [_multiplied(gpus, library, index, side, seconds) for index in range(gpus.count)]
    return _slowest(rates, "GFLOP/s", "cuBLAS")


def rate(once: Callable[[], float], seconds: float) -> float:
    """The work of `once` in a second, over about so many `seconds`; a first call does not count."""
    once()
    done, began_s = 0.0, time.perf_counter()
    while True:
        done += once()
        took_s = time.perf_counter() - began_s
        if took_s >= seconds:
            return done / max(took_s, 1e-9)


# --- helpers, in order of use ---------------------------------------------------------------------


def _whole(size: float, of: int) -> int:
    """A size, as a multiple."""
    return max(of, int(size) // of * of)


def _slowest(rates: list[float], unit: str, on: str) -> Figure:
    """The figure of GPUs, with the word which one it is."""
    least, count = min(rates), len(rates)
    note = f"the slowest is GPU {rates.index(least)}" if count > 1 else ""
    means = f"{on}, {count} GPU{'s' if count > 1 else ''}"
    return Figure(value=least / 1e9, unit=unit, on=means, note=note)


def _copy_numpy() -> Callable[[], float]:
    import numpy as np

    source = np.ones(_COPIED["cpu"] // 8)
    target = np.empty_like(source)

    def once() -> float:
        np.copyto(target, source)
        return 2.0 * source.nbytes

    return once


def _copied(gpus: GivenGpus, index: int, nbytes: int, seconds: float) -> float:
    """Bytes a second of copies on one GPU. All bytes of the last one are compared."""
    import numpy as np

    gpus.use(index)
    source, target = gpus.memory(nbytes), gpus.memory(nbytes)
    block = np.random.default_rng(index).integers(0, 1 << 32, min(nbytes, _BLOCK) // 4, np.uint32)
    parts = [(at, block[: (nbytes - at) // 4]) for at in range(0, nbytes, block.nbytes)]
    for at, data in parts:
        gpus.write(c_uint64(source.value + at), data)
    gpus.fill(target, 0, nbytes // 4)

    def once() -> float:
        gpus.copy(target, source, nbytes)
        gpus.wait()
        return 2.0 * nbytes

    found = rate(once, seconds)
    seen = np.empty_like(block)
    for at, data in parts:
        gpus.read(c_uint64(target.value + at), seen[: len(data)])
        if not np.array_equal(seen[: len(data)], data):
            raise WrongResult(f"GPU {index} copies something else than it was given")
    gpus.give_back(source, target)
    return found


def _multiply_numpy() -> Callable[[], float]:
    import numpy as np

    side = _SIDE["cpu"]
    left = np.random.default_rng(1).random((side, side), dtype=np.float32)
    first = left @ left

    def once() -> float:
        found = left @ left
        if not np.allclose(found, first, rtol=_ROUGH):
            raise WrongResult("a product of matrices differs from the first one")
        return 2.0 * side**3

    return once


def _multiplied(
    gpus: GivenGpus, library: ctypes.CDLL, index: int, side: int, seconds: float
) -> float:
    """Operations a second of products on one GPU, each compared with the first one there. One row
    of the first is compared with the cores.
    """
    import numpy as np

    gpus.use(index)
    left = np.random.default_rng(1).random((side, side), dtype=np.float32)
    given, first, next_one = [gpus.memory(left.nbytes) for _ in range(3)]
    gpus.write(given, left)
    blas = _Blas(library, index, side)
    blas.multiply(given, first)
    gpus.wait()
    row = np.empty(side, dtype=np.float32)
    gpus.read(first, row)
    # cuBLAS counts by columns, and a square of a matrix is the same either way.
    if not np.allclose(row, left[0] @ left, rtol=_ROUGH):
        raise WrongResult(f"a product on GPU {index} differs from that of the cores")
    allowed = _ROUGH * blas.norm(first) / side  # of one number among them all

    def once() -> float:
        blas.multiply(given, next_one)
        blas.subtract(first, next_one)
        if not blas.norm(next_one) <= allowed:  # true of NaN, too
            raise WrongResult(f"a product on GPU {index} differs from the first one")
        return 2.0 * side**3

    found = rate(once, seconds)
    gpus.give_back(given, first, next_one)
    return found


class _Blas:
    """cuBLAS on the current GPU, for square matrices of one side."""

    def __init__(self, library: ctypes.CDLL, index: int, side: int) -> None:
        self._library, self._index, self._side = library, index, side
        self._handle = c_void_p()
        self._call("cublasCreate_v2", byref(self._handle))

    def multiply(self, given: c_uint64, into: c_uint64) -> None:
        """The square of a matrix."""
        side, one, none = c_int(self._side), c_float(1.0), c_float(0.0)
        flag = c_int(_NO_TRANSPOSE)
        matrices = (byref(one), given, side, given, side, byref(none), into, side)
        self._call("cublasSgemm_v2", self._handle, flag, flag, side, side, side, *matrices)

    def subtract(self, given: c_uint64, of: c_uint64) -> None:
        """One matrix from another one."""
        count, less, step = c_int(self._side**2), c_float(-1.0), c_int(1)
        self._call("cublasSaxpy_v2", self._handle, count, byref(less), given, step, of, step)

    def norm(self, of: c_uint64) -> float:
        """The root of the sum of its squares. It waits for the GPU."""
        found, count, step = c_float(0.0), c_int(self._side**2), c_int(1)
        self._call("cublasSnrm2_v2", self._handle, count, of, step, byref(found))
        return found.value

    def _call(self, name: str, *arguments: object) -> None:
        code = int(getattr(self._library, name)(*arguments))
        if code:
            raise WrongResult(f"GPU {self._index}: {name}: cuBLAS error {code}")


def _by_torch(missing: NotMeasured, count: int, side: int, seconds: float) -> Figure:
    """The same by torch; the site's own, which dlq does not install."""
    try:
        torch = import_module("torch")
    except ImportError:
        raise NotMeasured(f"{missing}, and no torch") from None
    if not torch.cuda.is_available():
        raise NotMeasured(f"{missing}, and torch sees no GPU")
    rates = [rate(_multiply_torch(torch, index, side), seconds) for index in range(count)]
    return _slowest(rates, "GFLOP/s", "torch")


def _multiply_torch(torch: Any, index: int, side: int) -> Callable[[], float]:
    torch.manual_seed(1)
    left = torch.rand((side, side), device=f"cuda:{index}")
    first = left @ left

    def once() -> float:
        found = left @ left
        torch.cuda.synchronize(index)
        if not torch.allclose(found, first, rtol=_ROUGH):
            raise WrongResult(f"a product on GPU {index} differs from the first one")
        return 2.0 * side**3

    return once

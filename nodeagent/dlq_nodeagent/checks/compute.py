"""Memory bandwidth and matrix products, of each GPU that is given, or of the cores."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

from dlq_nodeagent.checks.result import Figure, WrongResult

_MIB = 1 << 20
_COPIED = {"cpu": 32 * _MIB, "cuda": 1024 * _MIB}  # bytes
_SIDE = {"cpu": 512, "cuda": 8192}  # of a matrix
_ROUGH = 1e-2  # the part by which two equal products may differ


def memory(seconds: float) -> Figure:
    """Bytes read and written in a second, in GB/s; of several GPUs the slowest."""
    return _slowest(_copy_numpy, _copy_torch, seconds, "GB/s")


def matrix(seconds: float) -> Figure:
    """Operations in GFLOP/s; of several GPUs the slowest. Raises WrongResult for a product that
    differs from the first one.
    """
    return _slowest(_multiply_numpy, _multiply_torch, seconds, "GFLOP/s")


def torch_with_gpus() -> Any:
    """The module torch, if it is installed and sees a GPU of this job; else None. It is the site's
    own: dlq does not install it.
    """
    if not os.environ.get("CUDA_VISIBLE_DEVICES"):
        return None
    try:
        torch = import_module("torch")
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


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


def _slowest(
    on_cores: Callable[[], Callable[[], float]],
    on_gpu: Callable[[Any, int], Callable[[], float]],
    seconds: float,
    unit: str,
) -> Figure:
    torch = torch_with_gpus()
    if torch is None:
        return Figure(value=rate(on_cores(), seconds) / 1e9, unit=unit, on="numpy")
    count = torch.cuda.device_count()
    rates = [rate(on_gpu(torch, index), seconds) for index in range(count)]
    return Figure(value=min(rates) / 1e9, unit=unit, on=f"torch, {count} GPUs")


def _copy_numpy() -> Callable[[], float]:
    import numpy as np

    source = np.ones(_COPIED["cpu"] // 8)
    target = np.empty_like(source)

    def once() -> float:
        np.copyto(target, source)
        return 2.0 * source.nbytes

    return once


def _copy_torch(torch: Any, index: int) -> Callable[[], float]:
    size = _COPIED["cuda"]
    source = torch.ones(size, dtype=torch.uint8, device=f"cuda:{index}")
    target = torch.empty_like(source)

    def once() -> float:
        target.copy_(source)
        torch.cuda.synchronize(index)
        return 2.0 * size

    return once


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


def _multiply_torch(torch: Any, index: int) -> Callable[[], float]:
    side = _SIDE["cuda"]
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

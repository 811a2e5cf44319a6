"""NVIDIA's libraries by ctypes: on the system, in CUDA's own directory, or as pip brings them.

Nothing of them is installed by dlq. The driver's library is on every host whose GPUs work; cuBLAS
and NCCL come with CUDA, with their own packages, or with torch.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from dlq_nodeagent.checks.result import NotMeasured

CUDA = ("libcuda.so.1",)
CUBLAS = ("libcublas.so.13", "libcublas.so.12", "libcublas.so.11")
NCCL = ("libnccl.so.2",)
_BESIDE = {"libcublas.so": "libcublasLt.so"}  # a library that must be loaded before, by its stem
_PLACES = ("nvidia/*/lib", "torch/lib")  # below a directory of packages


def opened(title: str, names: Sequence[str]) -> ctypes.CDLL:
    """The first of these libraries that is here. NotMeasured, with its title, if none is."""
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    for path in _copies(names):
        try:
            return _opened_at(path)
        except OSError:
            continue
    raise NotMeasured(f"{title} not found")


# --- helpers, in order of use ---------------------------------------------------------------------


def _copies(names: Sequence[str]) -> Iterator[Path]:
    """The same libraries where no loader looks."""
    places = [Path(entry) for entry in sys.path if entry]
    found = [directory for at in places for part in _PLACES for directory in at.glob(part)]
    found += [*Path("/usr/local").glob("cuda*/lib64"), Path(sys.prefix, "lib")]
    for name in names:
        for directory in found:
            if (directory / name).is_file():
                yield directory / name


def _opened_at(path: Path) -> ctypes.CDLL:
    stem, _, version = path.name.partition(".so.")
    beside = _BESIDE.get(f"{stem}.so")
    if beside is not None and (first := path.with_name(f"{beside}.{version}")).is_file():
        ctypes.CDLL(str(first), mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(str(path))

"""Numerical libraries that are loaded when a plan first counts with them.

Most masters never do: without deadlines, pools and exact placement no plan needs them. Loading all
of them takes half a second of CPU time and 60 MB. A library that is loaded late is whole, of one
version: nothing of it was there before. So only libraries come late, and never a module of dlq.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["np", "optimize", "sparse"]


class _Late:
    """Stands for a library. Its names are looked up once."""

    def __init__(self, library: str) -> None:
        self._library = library

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self._library), name)
        setattr(self, name, value)
        return value


if TYPE_CHECKING:
    import numpy as np
    from scipy import optimize, sparse
else:
    np, optimize, sparse = map(_Late, ("numpy", "scipy.optimize", "scipy.sparse"))


def load_numbers() -> None:
    """Load numpy now, where that is in nobody's way."""
    import_module("numpy")

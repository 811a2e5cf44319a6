"""Arrays that are used again at every step.

A large temporary of numpy is fresh memory each time, which the kernel maps, clears and takes back.
On these small models that would cost as much time as the training itself. Results written into the
same arrays (`out=`) are the same to the bit.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Scratch:
    """Working memory by name. An array is good until its name is asked for again."""

    def __init__(self) -> None:
        self._arrays: dict[tuple[str, tuple[int, ...]], NDArray[Any]] = {}

    def floats(self, name: str, *shape: int) -> NDArray[np.float64]:
        """The array of that name and shape, with its old content."""
        key = name, shape
        if key not in self._arrays:
            self._arrays[key] = np.empty(shape)
        return self._arrays[key]

    def bools(self, name: str, *shape: int) -> NDArray[np.bool_]:
        """The same for truth values."""
        key = name, shape
        if key not in self._arrays:
            self._arrays[key] = np.empty(shape, dtype=np.bool_)
        return self._arrays[key]

    def rows(self, name: str, table: NDArray[np.float64], drawn: NDArray[np.int64]) -> NDArray[Any]:
        """`table[drawn]`, written into the array of that name."""
        into = self.floats(name, *drawn.shape, *table.shape[1:])
        # "clip" writes straight into the array; the drawn values are never outside.
        np.take(table, drawn, axis=0, out=into, mode="clip")
        return into

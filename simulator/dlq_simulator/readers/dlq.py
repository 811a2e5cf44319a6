"""dlq's own columns: seconds, GPUs, one word a value."""

from __future__ import annotations

from dlq_simulator.columns import OPTIONAL, REQUIRED
from dlq_simulator.readers.dialect import Dialect, DialectColumn

DLQ = Dialect(
    name="dlq",
    marks=frozenset(REQUIRED),
    columns={name: DialectColumn(name, parse) for name, parse in {**REQUIRED, **OPTIONAL}.items()},
    required=tuple(REQUIRED),
)

"""The dialects of traces: the column names and units of a file, told from its header or by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from dlq_simulator.readers.chronus import CHRONUS
from dlq_simulator.readers.dialect import Dialect
from dlq_simulator.readers.gpuaas import GPUAAS
from dlq_simulator.readers.philly import PHILLY
from dlq_simulator.readers.tables import DLQ, MURI, POLLUX, TIRESIAS

# The first dialect whose own columns are all there reads the file: Muri's and Chronus' have all of
# Tiresias'.
DIALECTS: Mapping[str, Dialect] = MappingProxyType(
    {d.name: d for d in (DLQ, CHRONUS, MURI, TIRESIAS, PHILLY, POLLUX, GPUAAS)}
)
FORMATS: tuple[str, ...] = ("auto", *DIALECTS)


def dialect_of(header: Sequence[str], form: str) -> Dialect:
    """The dialect by name, or for `auto` the one that the header shows; `dlq` when none does."""
    if form != "auto":
        return DIALECTS[form]
    shown = (dialect for dialect in DIALECTS.values() if dialect.marks <= set(header))
    return next(shown, DLQ)

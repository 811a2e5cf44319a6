"""Rows of figures, column by column."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import NamedTuple, TypeVar

Row = TypeVar("Row", bound=NamedTuple)


def mean_row(rows: Sequence[Row]) -> Row:
    """The mean of each column of named tuples, as one of them; None where a row has none."""
    columns = zip(*rows, strict=True)
    return type(rows[0])._make(None if None in column else mean(column) for column in columns)

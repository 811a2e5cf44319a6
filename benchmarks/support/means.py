"""Rows of figures, column by column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any, NamedTuple, TypeVar

Row = TypeVar("Row", bound=NamedTuple)


def mean_row(rows: Sequence[Row]) -> Row:
    """The mean of each column of named tuples, as one of them; None where a row has none."""
    columns = zip(*rows, strict=True)
    return type(rows[0])._make(None if None in column else mean(column) for column in columns)


def means(values: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """The mean of each named figure; None where one lacks it."""
    columns = {name: [value[name] for value in values] for name in values[0]}
    return {name: None if None in column else mean(column) for name, column in columns.items()}

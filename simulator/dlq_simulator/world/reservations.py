"""The [[reservations]] of a cluster file: nodes without work for a time, as in `dlq
admin reserve`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from dlq_common.text.suggest import did_you_mean
from dlq_master.model.nodes.windows import Window
from dlq_simulator import toml_tables as toml
from dlq_simulator.errors import DataError

Seconds = int | float
_KEYS = ("nodes", "start", "end")


class ReservedNodes(NamedTuple):
    """Nodes that take no work from `start_s` to `end_s` on the trace's clock."""

    node_ids: tuple[str, ...]
    start_s: Seconds
    end_s: Seconds


def read_reservations(
    path: str, document: Mapping[str, Any], groups: Mapping[str, tuple[str, ...]]
) -> tuple[ReservedNodes, ...]:
    """The reservations. `groups`: own nodes by name of their group, which stands for all of its
    nodes.
    """
    tables = toml.tables(path, document, "reservations")
    return tuple(_read(where, table, groups) for where, table in tables)


def windows_of(reservations: Iterable[ReservedNodes]) -> dict[str, tuple[Window, ...]]:
    """When each node is reserved, in the order of the begins, with the master's names."""
    found: dict[str, list[Window]] = {}
    for number, one in enumerate(reservations, 1):
        for node_id in one.node_ids:
            window = Window(float(one.start_s), float(one.end_s), f"m{number}")
            found.setdefault(node_id, []).append(window)
    return {node_id: tuple(sorted(windows)) for node_id, windows in found.items()}


def reserved_seconds(windows: Iterable[Window], begin_s: Seconds, end_s: Seconds) -> Seconds:
    """The seconds in which a node with these windows is reserved; overlaps count once."""
    total, until_s = 0.0, float(begin_s)
    for window in sorted(windows):
        first_s, last_s = max(window.begin_s, until_s), min(window.end_s, float(end_s))
        if last_s > first_s:
            total += last_s - first_s
            until_s = last_s
    return total


def _read(where: str, table: toml.Table, groups: Mapping[str, tuple[str, ...]]) -> ReservedNodes:
    toml.only(where, table, _KEYS)
    for key in ("start", "end"):
        if key not in table:
            raise DataError(where, f"{key} is missing", f"write {key} = 3600")
    start_s, end_s = toml.number(where, table, "start"), toml.number(where, table, "end")
    if start_s is None or end_s is None or end_s <= start_s:
        raise DataError(where, "it would end before it begins", "write an end after its start")
    return ReservedNodes(_nodes(where, table.get("nodes"), groups), start_s, end_s)


def _nodes(where: str, named: object, groups: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    example = next((ids[0] for ids in groups.values()), "node-1")
    if not isinstance(named, list) or not named or not all(isinstance(it, str) for it in named):
        raise DataError(where, "nodes is not a list of names", f'write nodes = ["{example}"]')
    known = {node_id: (node_id,) for ids in groups.values() for node_id in ids} | dict(groups)
    for name in named:
        if name not in known:
            why = f"the cluster has no node of its own called {name!r}{did_you_mean(name, known)}"
            raise DataError(where, why, f"name nodes as they are called, such as {example}")
    return tuple(dict.fromkeys(node_id for name in named for node_id in known[name]))

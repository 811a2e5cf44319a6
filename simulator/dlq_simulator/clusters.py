"""Reads what the jobs run on: `15x4` (nodes x GPUs) or a TOML file of node groups.

[[nodes]]
name = "p100"            # nodes are called p100-1, p100-2, ... (default: node)
count = 15
gpus = 4
gpu_type = "P100"        # default: gpu
gpu_memory_gb = 16       # default: 80
speed = 1.0              # relative to what the trace's run times speak of; default: 1
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlq_common.suggest import did_you_mean
from dlq_simulator.errors import DataError, UsageError

_SHAPE = re.compile(r"(\d{1,6})x(\d{1,3})", re.ASCII)
_KEYS = ("name", "count", "gpus", "gpu_type", "gpu_memory_gb", "speed")
# An allocation is a bit mask of one machine word's worth of GPUs at most.
MAX_GPUS_PER_NODE = 64
MAX_NODES = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """`count` equal nodes; `memory_bytes` is one GPU's."""

    name: str = "node"
    count: int
    gpus: int
    gpu_type: str = "gpu"
    memory_bytes: int = 80 * 2**30
    speed: int | float = 1  # of its GPUs, relative to what the trace's durations speak of


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """`name` is the argument as typed: it stands in the results.

    `typed`: GPU types were given, so what a job says of its type counts.
    """

    name: str
    groups: tuple[NodeGroup, ...]
    typed: bool = True

    @property
    def nodes(self) -> int:
        return sum(group.count for group in self.groups)

    @property
    def gpus(self) -> int:
        return sum(group.count * group.gpus for group in self.groups)

    def each_node(self) -> Iterator[tuple[str, NodeGroup]]:
        """Node ids with their group, in file order; ids sort as they count (`node-007`)."""
        for group in self.groups:
            digits = len(str(group.count))
            for number in range(1, group.count + 1):
                yield f"{group.name}-{number:0{digits}d}", group


def read_cluster(text: str) -> ClusterSpec:
    """The cluster that `--cluster TEXT` names; anything else is an error with both forms in it."""
    shape = _SHAPE.fullmatch(text)
    if shape is not None:
        group = NodeGroup(count=int(shape[1]), gpus=int(shape[2]))
        return _sized(text, (group,), typed=False)
    if not text.endswith(".toml"):
        raise UsageError(
            f"cannot read the cluster {text!r}",
            "it is neither NODESxGPUS nor a .toml file",
            "write for example 15x4, or give the path of a TOML file with [[nodes]] tables",
        )
    return _sized(text, tuple(_groups(text, _load(text))), typed=True)


def _sized(text: str, groups: tuple[NodeGroup, ...], *, typed: bool) -> ClusterSpec:
    cluster = ClusterSpec(name=text, groups=groups, typed=typed)
    if not 1 <= cluster.nodes <= MAX_NODES:
        raise UsageError(
            f"cannot build the cluster {text!r}",
            f"it has {cluster.nodes} nodes",
            f"give from 1 to {MAX_NODES} nodes",
        )
    for group in groups:
        if not 1 <= group.gpus <= MAX_GPUS_PER_NODE:
            raise UsageError(
                f"cannot build the cluster {text!r}",
                f"a node has {group.gpus} GPUs",
                f"give from 1 to {MAX_GPUS_PER_NODE} GPUs a node",
            )
    return cluster


def _load(path: str) -> Mapping[str, Any]:
    try:
        with Path(path).open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(
            f"cannot read the cluster {path!r}", reason, "give the path of a TOML file"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(path, f"it is not TOML: {error}", "correct the file") from error


def _groups(path: str, document: Mapping[str, Any]) -> Iterator[NodeGroup]:
    for key in document:
        if key != "nodes":
            raise _unknown_key(path, key, ("nodes",))
    tables = document.get("nodes")
    if not isinstance(tables, list) or not tables:
        raise DataError(path, "it has no [[nodes]] table", "add one for each kind of node")
    names: set[str] = set()
    for number, table in enumerate(tables, 1):
        where = f"{path}, [[nodes]] table {number}"
        if not isinstance(table, dict):
            raise DataError(where, "it is not a table", "write [[nodes]] and keys below it")
        group = _group(where, table)
        if group.name in names:
            raise DataError(where, f"the name {group.name!r} is taken", "give each group its own")
        names.add(group.name)
        yield group


def _group(where: str, table: Mapping[str, Any]) -> NodeGroup:
    for key in table:
        if key not in _KEYS:
            raise _unknown_key(where, key, _KEYS)
    return NodeGroup(
        name=_text(where, table, "name", "node"),
        count=_whole(where, table, "count", None),
        gpus=_whole(where, table, "gpus", None),
        gpu_type=_text(where, table, "gpu_type", "gpu"),
        memory_bytes=_whole(where, table, "gpu_memory_gb", 80) * 2**30,
        speed=_positive(where, table, "speed", 1),
    )


def _text(where: str, table: Mapping[str, Any], key: str, default: str) -> str:
    value = table.get(key, default)
    if not isinstance(value, str) or not value:
        raise DataError(where, f"{key} is not a word", f'write {key} = "..."')
    return value


def _whole(where: str, table: Mapping[str, Any], key: str, default: int | None) -> int:
    value = table.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise DataError(where, f"{key} is not a whole number above 0", f"write {key} = 4")
    return value


def _positive(where: str, table: Mapping[str, Any], key: str, default: float) -> int | float:
    value = table.get(key, default)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 < value < math.inf:
        raise DataError(where, f"{key} is not a number above 0", f"write {key} = 1.5")
    return value  # type: ignore[no-any-return]  # a number, as was just asked


def _unknown_key(where: str, key: str, known: tuple[str, ...]) -> DataError:
    return DataError(
        where, f"unknown key {key!r}{did_you_mean(key, known)}", f"known keys: {', '.join(known)}"
    )

"""The simulated cluster: `15x4` (nodes x GPUs), or a TOML file of nodes, loans and rented machines.

docs/policies/simulate.md shows every key.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dlq_master.model.nodes.node import NodePool
from dlq_master.model.nodes.type_speeds import ALL_ALIKE, TypeSpeeds
from dlq_master.policy.priced.names import DEFAULT, SETTINGS
from dlq_simulator import toml_tables as toml
from dlq_simulator.errors import DataError, UsageError
from dlq_simulator.world.loans import Steps, read_steps
from dlq_simulator.world.reservations import ReservedNodes, read_reservations

_KEYS = ("policy", "settings", "most_per_hour", "most_per_day")


@dataclass(frozen=True, slots=True, kw_only=True)
class RentingSpec:
    """The method that chooses machines, and its limits of cost per hour and per 24 hours (None: no
    limit).
    """

    policy: str = DEFAULT
    settings: Mapping[str, str] = field(default_factory=dict)
    most_per_hour: int | float | None = None
    most_per_day: int | float | None = None


def read_renting(path: str, document: Mapping[str, Any]) -> RentingSpec | None:
    """The renting of a file; None: no machine is rented beside own nodes. DataError: it
    is wrong.
    """
    if "renting" not in document:
        return None
    table, where = document["renting"], f"{path}, [renting]"
    if not isinstance(table, dict):
        raise DataError(where, "it is not a table", "write [renting] and keys below it")
    toml.only(where, table, _KEYS)
    policy = toml.text(where, table, "policy", DEFAULT)
    if policy not in SETTINGS:
        known = ", ".join(SETTINGS)
        raise DataError(where, f"there is no priced policy {policy!r}", f"choose one of {known}")
    settings = table.get("settings", {})
    if not isinstance(settings, dict) or not all(
        isinstance(word, str) for word in settings.values()
    ):
        raise DataError(where, "settings are words", 'write settings = { iterations = "50" }')
    for key in settings:
        if key not in SETTINGS[policy]:
            known = ", ".join(SETTINGS[policy]) or "none"
            raise DataError(where, f"policy {policy} has no setting {key!r}", f"it has {known}")
    return RentingSpec(
        policy=policy,
        settings=settings,
        most_per_hour=toml.number(where, table, "most_per_hour"),
        most_per_day=toml.number(where, table, "most_per_day"),
    )


_SHAPE = re.compile(r"(\d{1,6})x(\d{1,3})", re.ASCII)
_NODES = ("name", "count", "gpus", "gpu_type", "gpu_memory_gb", "speed", "price_per_hour")
_LOANS = (*_NODES, "rows", "trace", "headroom", "settle_s")
_CATALOGUE = (*_NODES, "at_most", "boot_s", "minimum_billing_s", "until_s")
# An allocation is a bit mask of one machine word's worth of GPUs at most.
MAX_GPUS_PER_NODE = 64
MAX_NODES = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """`count` equal nodes. `memory_bytes`: of one GPU; `price_per_hour`: of one node (None:
    unpriced).

    `lent`: how many of them an inference cluster lends, over time; None: all of them, once they
    have booted.
    """

    name: str = "node"
    count: int
    gpus: int
    gpu_type: str = "gpu"
    memory_bytes: int = 80 * 2**30
    speed: int | float = 1  # of its GPUs, relative to the reference of the trace's durations
    price_per_hour: int | float | None = None
    boot_s: int | float = 0
    minimum_billing_s: int | float = 0
    until_s: int | float = math.inf  # when the provider takes them back
    lent: Steps | None = None
    at_most: int = 0  # that may be rented

    @property
    def pool(self) -> NodePool:
        """The owner of its nodes; temporary nodes are not the cluster's own."""
        if self.lent is not None:
            return NodePool.INFERENCE
        return NodePool.TRAINING if self.until_s == math.inf else NodePool.PRICED

    def each_node(self) -> Iterator[str]:
        """Ids that sort by number (`node-007`)."""
        digits = len(str(self.count))
        for number in range(1, self.count + 1):
            yield f"{self.name}-{number:0{digits}d}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """`name`: the argument as typed, for the results. `typed`: GPU types were given, so that a
    job's type and memory count.

    `catalogue`: the kinds of machines that can be rented, in any number. `rent_at_most`: the most
    of them under a policy that rents by need (None: not given).
    """

    name: str
    groups: tuple[NodeGroup, ...]
    typed: bool = True
    catalogue: tuple[NodeGroup, ...] = ()
    rent_at_most: int | None = None
    reservations: tuple[ReservedNodes, ...] = ()
    renting: RentingSpec | None = None  # of the catalogue by need, beside own nodes

    @property
    def nodes(self) -> int:
        """The number of all nodes, lent ones included."""
        return sum(group.count for group in self.groups)

    @property
    def gpus(self) -> int:
        """The number of all GPUs, lent ones included."""
        return sum(group.count * group.gpus for group in self.groups)

    @property
    def lends(self) -> bool:
        """Whether some nodes are lent."""
        return any(group.lent is not None for group in self.groups)

    def type_speeds(self) -> TypeSpeeds:
        """The speeds of GPU types as an operator declares them to a master: the slowest of each
        type.

        A type without a node has the speed of the catalogue's machines.
        """
        found: dict[str, float] = {}
        there: dict[str, float] = {}
        for groups, speeds in ((self.catalogue, found), (self.groups, there)):
            for group in groups:
                kind = group.gpu_type
                speeds[kind] = min(group.speed, speeds.get(kind, group.speed))
        found |= there
        return ALL_ALIKE if {*found.values()} <= {1} else TypeSpeeds(found)

    @property
    def rented_only(self) -> bool:
        """Whether the cluster has no own node, and rents all nodes by need."""
        return not self.groups and bool(self.catalogue) and self.rent_at_most is not None

    def each_node(self) -> Iterator[tuple[str, NodeGroup]]:
        """Node ids with their group, in the order of the file."""
        for group in self.groups:
            for node_id in group.each_node():
                yield node_id, group


def read_cluster(text: str) -> ClusterSpec:
    """The cluster of `--cluster TEXT`. An error shows both forms of it."""
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
    document = _load(text)
    kinds = tuple(_groups(text, document))
    most = toml.whole(text, document, "rent_at_most") if "rent_at_most" in document else None
    cluster = _sized(text, kinds, typed=True, rented=len(document.get("catalogue", ())), most=most)
    own = [group for group in cluster.groups if group.pool is NodePool.TRAINING]
    named = {group.name: tuple(group.each_node()) for group in own}
    return replace(
        cluster,
        reservations=read_reservations(text, document, named),
        renting=_renting(text, document, cluster),
    )


def _renting(text: str, document: Mapping[str, Any], cluster: ClusterSpec) -> RentingSpec | None:
    """The renting of the file; None: it has none.

    DataError: a kind in the catalogue has a fixed count, or there are no own nodes or no catalogue.
    """
    renting = read_renting(text, document)
    if renting is not None:
        always = next((group.name for group in cluster.catalogue if group.count), None)
        if always is not None:
            why = f"beside [renting] all machines are rented by need, and {always} has a count"
            raise DataError(text, why, "leave count out, and say at_most")
        if not cluster.groups or not cluster.catalogue:
            why = "[renting] wants nodes of the cluster's own, and a catalogue"
            raise DataError(text, why, "add [[nodes]] and [[catalogue]] tables")
    return renting


def _sized(
    text: str,
    kinds: tuple[NodeGroup, ...],
    *,
    typed: bool,
    rented: int = 0,
    most: int | None = None,
) -> ClusterSpec:
    """The groups in the order of the file; the last `rented` kinds are from its catalogue."""
    groups = tuple(group for group in kinds if group.count)
    catalogue = kinds[len(kinds) - rented :]
    cluster = ClusterSpec(
        name=text, groups=groups, typed=typed, catalogue=catalogue, rent_at_most=most
    )
    least = 0 if catalogue and most else 1
    if not least <= cluster.nodes <= MAX_NODES or not (most or 1) <= MAX_NODES:
        raise UsageError(
            f"cannot build the cluster {text!r}",
            f"it has {cluster.nodes} nodes",
            f"give from 1 to {MAX_NODES} nodes",
        )
    for group in kinds:
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
    toml.only(path, document, (*_KINDS, "rent_at_most", "reservations", "renting"))
    names: set[str] = set()
    for kind, read in _KINDS.items():
        for where, table in toml.tables(path, document, kind):
            group = read(where, table, Path(path).parent)
            if group.name in names:
                raise DataError(
                    where, f"the name {group.name!r} is taken", "give each group its own"
                )
            names.add(group.name)
            yield group
    if not names:
        raise DataError(path, "it has no [[nodes]] table", "add one for each kind of node")


def _own(where: str, table: toml.Table, _directory: Path) -> NodeGroup:
    toml.only(where, table, _NODES)
    return NodeGroup(count=toml.whole(where, table, "count"), **_node(where, table, "node"))


def _lent(where: str, table: toml.Table, directory: Path) -> NodeGroup:
    """The servers that an inference cluster lends."""
    toml.only(where, table, _LOANS)
    count = toml.whole(where, table, "count")
    steps = read_steps(where, table, count, directory)
    return NodeGroup(count=count, lent=steps, **_node(where, table, "lent"))


def _rented(where: str, table: toml.Table, _directory: Path) -> NodeGroup:
    """A kind of machine that a provider rents, and how many are always rented."""
    toml.only(where, table, _CATALOGUE)
    count = toml.whole(where, table, "count", 0, least=0)
    at_most = toml.whole(where, table, "at_most", MAX_NODES)
    if count > at_most:
        why = f"count is {count} and at_most {at_most}"
        raise DataError(where, why, "the most to rent")
    node = _node(where, table, "")
    if node["price_per_hour"] is None:
        raise DataError(where, "price_per_hour is missing", "write price_per_hour = 2.25")
    return NodeGroup(
        count=count,
        at_most=at_most,
        boot_s=toml.number(where, table, "boot_s", 0) or 0,
        minimum_billing_s=toml.number(where, table, "minimum_billing_s", 0) or 0,
        until_s=toml.positive(where, table, "until_s", 1) if "until_s" in table else math.inf,
        **node,
    )


def _node(where: str, table: toml.Table, name: str) -> dict[str, Any]:
    return {
        "name": toml.text(where, table, "name", name),
        "gpus": toml.whole(where, table, "gpus"),
        "gpu_type": toml.text(where, table, "gpu_type", "gpu"),
        "memory_bytes": toml.whole(where, table, "gpu_memory_gb", 80) * 2**30,
        "speed": toml.positive(where, table, "speed", 1),
        "price_per_hour": toml.number(where, table, "price_per_hour"),
    }


_KINDS: Mapping[str, Callable[[str, toml.Table, Path], NodeGroup]] = {
    "nodes": _own,
    "loans": _lent,
    "catalogue": _rented,
}

"""What nodes have that jobs may ask for, and which of the nodes have all that one job asks for.

What a job asks for is one text, so that jobs which ask for the same are of one shape: traits joined
by `&`. A trait is a runtime (`podman`), a label (`rack=r1`), `@gpu01,gpu02` (one of these nodes) or
`!gpu07` (none of these).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from dlq_master.model.ids import NodeId

_AND = "&"
_AMONG, _NOT_AMONG = "@", "!"


class Bearer(Protocol):
    """A node, as far as traits go."""

    @property
    def node_id(self) -> NodeId: ...
    @property
    def runtimes(self) -> frozenset[str]: ...
    @property
    def labels(self) -> frozenset[str]: ...


def wanted(
    runtime: str | None,
    constraint: Iterable[str] = (),
    among: Iterable[NodeId] = (),
    not_among: Iterable[NodeId] = (),
) -> str | None:
    """The text for all of this together, equal for equal wishes; None: any node will do."""
    traits = [*([runtime] if runtime else []), *sorted(constraint)]
    for sign, node_ids in ((_AMONG, sorted(among)), (_NOT_AMONG, sorted(not_among))):
        if node_ids:
            traits.append(sign + ",".join(node_ids))
    return _AND.join(traits) or None


def runtime_of(text: str | None) -> str | None:
    """The runtime in it, if there is one: what it means beside the operator's and the user's choices."""
    first = (text or "").partition(_AND)[0]
    return None if not first or "=" in first or first[0] in (_AMONG, _NOT_AMONG) else first


def chosen(text: str) -> list[str]:
    """What the user has chosen nodes by, for people: `rack=r1`, `among gpu01,gpu02`, `not gpu07`."""
    traits = text.split(_AND)[1 if runtime_of(text) else 0 :]
    words = {_AMONG: "among ", _NOT_AMONG: "not "}
    return [words[each[0]] + each[1:] if each[0] in words else each for each in traits]


def has_all(node: Bearer, text: str) -> bool:
    """Whether one node has all of it."""
    return all(_has(node, trait) for trait in text.split(_AND))


def _has(node: Bearer, trait: str) -> bool:
    if trait[0] == _AMONG:
        return node.node_id in trait[1:].split(",")
    if trait[0] == _NOT_AMONG:
        return node.node_id not in trait[1:].split(",")
    return trait in (node.labels if "=" in trait else node.runtimes)


class Traits:
    """The same for all nodes of a cluster at once: bitmasks over nodes in the order of their ids.

    Worked out once for each text; whoever changes what nodes have makes a new one.
    """

    __slots__ = ("_by_trait", "_known", "_node_ids")

    def __init__(self, by_trait: Mapping[str, int], node_ids: Sequence[NodeId] = ()) -> None:
        self._by_trait = by_trait
        self._node_ids = node_ids
        self._known: dict[str, int] = {}

    @classmethod
    def of(cls, nodes: Sequence[Bearer]) -> Traits:
        """Those of all nodes, which are sorted."""
        by_trait: dict[str, int] = {}
        for ordinal, node in enumerate(nodes):
            for trait in node.runtimes | node.labels:
                by_trait[trait] = by_trait.get(trait, 0) | 1 << ordinal
        return cls(by_trait, [node.node_id for node in nodes])

    def mask(self, text: str) -> int:
        """The nodes that have all of it."""
        known = self._known.get(text)
        if known is None:
            known = -1
            for trait in text.split(_AND):
                known &= self._mask_of(trait)
            self._known[text] = known
        return known

    def _mask_of(self, trait: str) -> int:
        if trait[0] not in (_AMONG, _NOT_AMONG):
            return self._by_trait.get(trait, 0)
        named = set(trait[1:].split(","))
        mask = sum(1 << at for at, node_id in enumerate(self._node_ids) if node_id in named)
        return mask if trait[0] == _AMONG else ~mask


NOTHING = Traits({})

"""Traits of nodes for which jobs may ask, and the nodes that have all traits of one job.

The traits of a job are one text, joined by `&`, so that jobs with the same request have one shape.
A trait is a runtime (`podman`), a label (`rack=r1`), or a size of the host (`cpus>=8`,
`memory>=68719476736`, bytes). It may also be a size of its smallest GPU (`gpu_memory>=...`) or of
each of its job cores (`core_memory>=...`). Or it is `@gpu01,gpu02` (one of these nodes) or
`!gpu07` (none of these).

Sizes are those of whole hosts, and what other jobs have declared is not taken off. A host that has
told no size (0) is large enough.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from dlq_master.model.ids import NodeId

_AND = "&"
_AMONG, _NOT_AMONG = "@", "!"
_AT_LEAST = ">="
_CPUS, _MEMORY, _GPU_MEMORY, _CORE_MEMORY = "cpus", "memory", "gpu_memory", "core_memory"
SIZES = (_CPUS, _MEMORY, _GPU_MEMORY, _CORE_MEMORY)
_OF_MEMORY = {
    _MEMORY: "memory",
    _GPU_MEMORY: "GPU memory",
    _CORE_MEMORY: "memory for each core of a job without GPUs",
}
_GIB = 2**30


class Bearer(Protocol):
    """A node, as far as traits go."""

    @property
    def node_id(self) -> NodeId: ...
    @property
    def runtimes(self) -> frozenset[str]: ...
    @property
    def labels(self) -> frozenset[str]: ...
    @property
    def cpu_count(self) -> int: ...
    @property
    def memory_bytes(self) -> int: ...
    @property
    def gpu_memory_bytes(self) -> int: ...
    @property
    def core_memory_bytes(self) -> int: ...


def wanted(
    runtime: str | None,
    constraint: Iterable[str] = (),
    among: Iterable[NodeId] = (),
    not_among: Iterable[NodeId] = (),
    *,
    cpus: int | None = None,
    memory_bytes: int | None = None,
    gpu_memory_bytes: int | None = None,
    core_memory_bytes: int | None = None,
) -> str | None:
    """The text for all of this together, equal for equal wishes; None: any node will do."""
    traits = [*([runtime] if runtime else []), *sorted(constraint)]
    asked = (cpus, memory_bytes, gpu_memory_bytes, core_memory_bytes)
    sizes = zip(SIZES, asked, strict=True)
    traits += [at_least(what, least) for what, least in sizes if least]
    for sign, node_ids in ((_AMONG, sorted(among)), (_NOT_AMONG, sorted(not_among))):
        if node_ids:
            traits.append(sign + ",".join(node_ids))
    return _AND.join(traits) or None


def runtime_of(text: str | None) -> str | None:
    """The runtime in it, if there is one, which adds to the operator's and the user's choices."""
    first = (text or "").partition(_AND)[0]
    return None if not first or "=" in first or first[0] in (_AMONG, _NOT_AMONG) else first


def chosen(text: str) -> list[str]:
    """The user's choice of nodes, for people: `rack=r1`, `nodes with 8 cores`, `one of
    gpu01,gpu02`, `not gpu07`.
    """
    return [_words(trait) for trait in text.split(_AND)[1 if runtime_of(text) else 0 :]]


def words_of(text: str) -> str:
    """All of that choice together."""
    return " and ".join(chosen(text)) if text else ""


def each_alone(text: str) -> list[str]:
    """One text for each of the user's choices, with the runtime in it if there is one."""
    runtime = runtime_of(text)
    own = text.split(_AND)[0 if runtime is None else 1 :]
    return own if runtime is None else [f"{runtime}{_AND}{trait}" for trait in own]


def _words(trait: str) -> str:
    if trait[0] in (_AMONG, _NOT_AMONG):
        return ("one of " if trait[0] == _AMONG else "not ") + trait[1:]
    what, least = size_of(trait)
    return f"nodes with {_amount(what, least)}" if what else trait


def too_small(nodes: Iterable[Bearer], text: str) -> str:
    """Of the first size in it that no node has, the most that there is: `23.5GiB of memory`."""
    for what, least in map(size_of, text.split(_AND)):
        most = max((_of(node, what, least) for node in nodes), default=0) if what else 0
        if most < least:
            return _amount(what, most)
    return ""


def split(text: str) -> list[str]:
    """Its traits, one by one."""
    return text.split(_AND)


def joined(traits: Iterable[str]) -> str | None:
    """One text of traits; None: of no trait."""
    return _AND.join(traits) or None


def at_least(what: str, least: int) -> str:
    """The trait of a host with so much of it."""
    return f"{what}{_AT_LEAST}{least}"


def sizes_of(node: Bearer) -> list[tuple[str, int]]:
    """All sizes that the host has told."""
    return [(what, size) for what in SIZES if (size := _of(node, what, 0))]


def size_of(trait: str) -> tuple[str, int]:
    """The required sizes of the host. ("", 0) for another trait."""
    what, at_least, least = trait.partition(_AT_LEAST)
    return (what, int(least)) if at_least and what in SIZES else ("", 0)


def _of(node: Bearer, what: str, unknown: int) -> int:
    if what == _GPU_MEMORY:
        return node.gpu_memory_bytes or unknown
    found = {
        _CPUS: node.cpu_count,
        _MEMORY: node.memory_bytes,
        _CORE_MEMORY: node.core_memory_bytes,
    }
    return found[what] or unknown


def _amount(what: str, much: int) -> str:
    if what in _OF_MEMORY:
        gib = f"{much / _GIB:.2f}".rstrip("0").rstrip(".")  # one unit: comparable
        return f"{gib}GiB of {_OF_MEMORY[what]}"
    return f"{much} core{'' if much == 1 else 's'}"


def has_all(node: Bearer, text: str) -> bool:
    """Whether one node has all of it."""
    return all(_has(node, trait) for trait in text.split(_AND))


def _has(node: Bearer, trait: str) -> bool:
    if trait[0] == _AMONG:
        return node.node_id in trait[1:].split(",")
    if trait[0] == _NOT_AMONG:
        return node.node_id not in trait[1:].split(",")
    what, least = size_of(trait)
    if what:
        return _of(node, what, least) >= least
    return trait in (node.labels if "=" in trait else node.runtimes)


class Traits:
    """The same for all nodes of a cluster at once: bitmasks over nodes in the order of their ids.

    Worked out once for each text; a change of the nodes' traits makes a new one.
    """

    __slots__ = ("_by_size", "_by_trait", "_known", "_nodes")

    def __init__(self, by_trait: Mapping[str, int], nodes: Sequence[Bearer] = ()) -> None:
        self._by_trait = by_trait
        self._nodes = nodes
        self._known: dict[str, int] = {}
        self._by_size: dict[str, tuple[list[int], dict[int, int]]] = {}

    @classmethod
    def of(cls, nodes: Sequence[Bearer]) -> Traits:
        """Those of all nodes, which are sorted."""
        by_trait: dict[str, int] = {}
        for ordinal, node in enumerate(nodes):
            for trait in node.runtimes | node.labels:
                by_trait[trait] = by_trait.get(trait, 0) | 1 << ordinal
        return cls(by_trait, nodes)

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
        if trait[0] in (_AMONG, _NOT_AMONG):
            return self._having(trait)
        what, least = size_of(trait)
        return self._as_large(what, least) if what else self._by_trait.get(trait, 0)

    def _as_large(self, what: str, least: int) -> int:
        """Worked out once for each size of the nodes, however many sizes jobs ask for."""
        if what not in self._by_size:
            self._by_size[what] = (sorted({_of(node, what, 0) for node in self._nodes}), {})
        sizes, masks = self._by_size[what]
        place = bisect_left(sizes, least)
        if place not in masks:
            masks[place] = self._having(at_least(what, least))
        return masks[place]

    def _having(self, trait: str) -> int:
        return sum(1 << at for at, node in enumerate(self._nodes) if _has(node, trait))


NOTHING = Traits({})

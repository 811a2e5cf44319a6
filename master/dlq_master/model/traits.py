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
from collections.abc import Callable, Iterable, Mapping
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
_KEPT_UP = 256  # traits that are asked for


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
    @property
    def doubted(self) -> bool: ...


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

    Each trait that is asked for is worked out once, and then kept up as nodes come, change and go.
    `doubted`: the suspected stragglers; 0: there are none.
    """

    __slots__ = ("_by_text", "_by_trait", "_nodes", "_steps", "doubted")

    def __init__(self, by_trait: Mapping[str, int], nodes: Iterable[Bearer] = ()) -> None:
        """`nodes`: all of them, sorted. `by_trait`: traits that are worked out already."""
        self._by_trait = dict(by_trait)
        self._nodes = [*nodes]
        self.doubted = sum(1 << place for place, node in enumerate(self._nodes) if node.doubted)
        self._by_text: dict[str, int] = {}
        self._steps: dict[str, list[int]] = {}  # all different sizes, rising, and some former ones

    def insert(self, ordinal: int, node: Bearer) -> None:
        """A node comes at this place."""
        self._nodes.insert(ordinal, node)
        self._keep_up(lambda mask: gap_at(mask, ordinal), ordinal, node)

    def change(self, ordinal: int, node: Bearer) -> None:
        """The node has other traits."""
        self._nodes[ordinal] = node
        self._keep_up(lambda mask: mask & ~(1 << ordinal), ordinal, node)

    def delete(self, ordinal: int) -> None:
        """The node is gone."""
        del self._nodes[ordinal]
        self._keep_up(lambda mask: closed_at(mask, ordinal), ordinal, None)

    def mask(self, text: str) -> int:
        """The nodes that have all of it."""
        known = self._by_text.get(text)
        if known is None:
            known = -1
            for trait in text.split(_AND):
                known &= self._mask_of(trait)
            self._by_text[text] = known
        return known

    def _keep_up(self, moved: Callable[[int], int], ordinal: int, node: Bearer | None) -> None:
        """Renew what is known of single traits. Many of them are rather worked out again."""
        self._by_text.clear()
        self.doubted = moved(self.doubted) | int(node is not None and node.doubted) << ordinal
        if len(self._by_trait) > _KEPT_UP:
            self._by_trait.clear()
            self._steps.clear()
        for trait, mask in self._by_trait.items():
            bit = int(node is not None and _has(node, trait)) << ordinal
            self._by_trait[trait] = moved(mask) | bit
        if node is not None:
            for what, steps in self._steps.items():
                size = _of(node, what, 0)
                place = bisect_left(steps, size)
                if steps[place : place + 1] != [size]:
                    steps.insert(place, size)

    def _mask_of(self, trait: str) -> int:
        what, least = size_of(trait)
        if what:
            trait = at_least(what, self._step(what, least))
        if trait not in self._by_trait:
            self._by_trait[trait] = self._having(trait)
        return self._by_trait[trait]

    def _step(self, what: str, least: int) -> int:
        """The least size that asks for the same nodes: no two sizes without a node between them
        are worked out.
        """
        if what not in self._steps:
            self._steps[what] = sorted({_of(node, what, 0) for node in self._nodes})
        steps = self._steps[what]
        place = bisect_left(steps, least)
        return steps[place] if place < len(steps) else max(steps, default=0) + 1

    def _having(self, trait: str) -> int:
        if trait[0] in (_AMONG, _NOT_AMONG):
            names, among = {*trait[1:].split(",")}, trait[0] == _AMONG
            found = ["01"[(node.node_id in names) is among] for node in reversed(self._nodes)]
        else:
            found = ["01"[_has(node, trait)] for node in reversed(self._nodes)]
        return int("".join(found) or "0", 2)


NOTHING = Traits({})


def gap_at(mask: int, place: int) -> int:
    """The mask with a 0 put in at this place; the bits from there on move up."""
    higher = mask >> place
    return mask if not higher else higher << place + 1 | mask & ((1 << place) - 1)


def closed_at(mask: int, place: int) -> int:
    """The mask without the bit of this place; the bits behind it move down."""
    return mask >> place + 1 << place | mask & ((1 << place) - 1)

"""The request of a job and its allocation: exact GPUs on exact nodes, as bitmasks.

A job without GPUs asks for CPU cores instead. They are devices as GPUs are, of a type of their own:
a node's job cores have the bits from FIRST_CORE on. No word about "any type" means them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from dlq_master.model.ids import NodeId
from dlq_master.model.traits import wanted

CORE_TYPE = "cpu"  # of job cores; no GPU has it
CORES_ONLY = (CORE_TYPE,)  # the types of a job without GPUs
FIRST_CORE = (
    1024  # the bit of a node's first job core: above those of all GPUs, whatever their number
)
GPU_BITS = (1 << FIRST_CORE) - 1
PODMAN = "podman"  # the runtime of jobs with an image, as agents name it
T = TypeVar("T")


class Shape(NamedTuple):
    """The part of a request that decides where it fits; jobs of one shape are interchangeable."""

    gpus: int
    nodes: int | None  # exact number of nodes, or None: any split
    gpu_types: tuple[str, ...] | None  # any one of these, or None: of all; one type per job
    avoid: tuple[NodeId, ...] = ()  # not on these nodes
    traits: str | None = None  # on nodes that have these (traits.py); None: on any
    together: bool | None = None  # on few nodes, or on any; None: as the place stage likes
    mixed: bool = False  # also on GPUs of several types at once, where a placement does that

    @property
    def real_gpus(self) -> int:
        """Its GPUs, where cores do not count."""
        return 0 if self.gpu_types == CORES_ONLY else self.gpus

    def on_type(self, gpu_type: str) -> Shape:
        return self._replace(gpu_types=(gpu_type,), mixed=False)

    def may_be(self, gpu_type: str) -> bool:
        if self.gpu_types is None:
            return gpu_type != CORE_TYPE
        return gpu_type in self.gpu_types

    def of_types(self, by_type: Mapping[str, T]) -> Iterable[tuple[str, T]]:
        """The GPUs of the types on which it may run, its preferred type first."""
        if self.gpu_types is None:
            return only_gpus(by_type).items()
        return [(kind, by_type[kind]) for kind in self.gpu_types if kind in by_type]


def only_gpus(by_type: Mapping[str, T]) -> Mapping[str, T]:
    """The same without the type of job cores."""
    if CORE_TYPE not in by_type:
        return by_type
    return {kind: it for kind, it in by_type.items() if kind != CORE_TYPE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Total GPUs of a job, all or nothing. CPU and memory are limits, and its nodes must have so
    much. The limits of other jobs there are not subtracted.

    A job without GPUs has the type CORE_TYPE, and `gpus` counts its cores. `core_memory_bytes` is
    the memory that each of its cores must bring. `core_weight` is the part of a GPU by which a core
    counts wherever jobs are compared.

    An elastic job may run on any of its `sizes`, and asks for one of them. With an explicit number
    of nodes the GPUs of each node stay the same, and their number changes.
    """

    gpus: int
    nodes: int | None = None
    gpu_type: str | None = None  # None: any
    cpus_per_node: int | None = None
    memory_bytes_per_node: int | None = None
    avoid: tuple[NodeId, ...] = ()  # nodes that it must not get, for now
    runtime: str | None = None  # what its nodes must run besides processes: PODMAN, for an image
    constraint: tuple[str, ...] = ()  # labels that its nodes must have, `K=V`, sorted
    among: tuple[NodeId, ...] = ()  # only on these nodes, sorted; empty: on any
    not_among: tuple[NodeId, ...] = ()  # never on these, sorted
    sizes: tuple[int, ...] = ()  # numbers of GPUs that will do, rising; empty: only `gpus`
    mixed: bool = False  # its GPUs may be of several types at once
    gpu_memory_bytes: int | None = None  # each GPU must have so much ...
    halves_batch: bool = False  # ... or half of it
    live: bool = False  # torchrun takes whole nodes up and lets them go while it runs
    or_gpu_types: tuple[str, ...] = ()  # that will do too, all of one type; the best first
    core_memory_bytes: int | None = None
    core_weight: float = 0.0
    shape: Shape = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.gpus < 1:
            raise ValueError(f"a job needs at least 1 GPU, not {self.gpus}")
        if self.nodes is not None and (self.nodes < 1 or self.gpus % self.nodes):
            raise ValueError(f"{self.gpus} GPUs cannot be split evenly over {self.nodes} nodes")
        for name in _SIZES:
            limit = getattr(self, name)
            if limit is not None and limit < 1:
                raise ValueError(f"{name} must be positive, not {limit}")
        if self.mixed and (self.gpu_type is not None or self.nodes is not None):
            raise ValueError("a job that names a GPU type or a number of nodes is not mixed")
        self._check_types()
        if self.without_gpus and (self.sizes or self.mixed or self.gpu_memory_bytes):
            raise ValueError("a job without GPUs is not elastic, and asks for no memory of GPUs")
        if self.sizes:
            self._check_sizes()
        if self.live and (not self.sizes or self.nodes is None):
            raise ValueError("only an elastic job with GPUs per node is resized while it runs")
        traits = wanted(
            self.runtime,
            self.constraint,
            self.among,
            self.not_among,
            cpus=self.cpus_per_node,
            # The memory of a node's cores carries it: those are enough.
            memory_bytes=None if self.without_gpus else self.memory_bytes_per_node,
            gpu_memory_bytes=self.least_gpu_memory_bytes,
            core_memory_bytes=self.core_memory_bytes,
        )
        shape = Shape(self.gpus, self.nodes, self.gpu_types, self.avoid, traits, mixed=self.mixed)
        object.__setattr__(self, "shape", shape)

    @property
    def without_gpus(self) -> bool:
        """Whether it gets cores and no GPU."""
        return self.gpu_type == CORE_TYPE

    @property
    def real_gpus(self) -> int:
        """Its GPUs, where cores do not count."""
        return 0 if self.gpu_type == CORE_TYPE else self.gpus

    @property
    def most_gpus(self) -> int:
        """The GPUs of its largest size, where cores do not count."""
        return max(self.sizes, default=self.real_gpus)

    @property
    def cores(self) -> int:
        """The cores of a job without GPUs."""
        return self.gpus if self.gpu_type == CORE_TYPE else 0

    @property
    def real_base(self) -> int:
        """The fewest GPUs that it runs on, where cores do not count."""
        return 0 if self.gpu_type == CORE_TYPE else self.base

    def weighed(self, devices: int) -> float:
        """How many GPUs so many of its devices count for, where jobs are compared."""
        return devices * self.core_weight if self.gpu_type == CORE_TYPE else devices

    @property
    def names_one_type(self) -> bool:
        """Whether it gets GPUs of one type that it names."""
        return self.gpu_type is not None and not self.or_gpu_types

    def paced(self, speed: float) -> float:
        """Seconds of its run time that a second on GPUs of this speed does. The run time of a job
        that names one type holds there (`TypeSpeeds`)."""
        return 1.0 if self.gpu_type is not None and not self.or_gpu_types else speed

    @property
    def gpu_types(self) -> tuple[str, ...] | None:
        """The types of GPUs on which it may run, the one that it likes best first; None: all."""
        return None if self.gpu_type is None else (self.gpu_type, *self.or_gpu_types)

    @property
    def least_gpu_memory_bytes(self) -> int | None:
        """The memory without which a GPU will not do."""
        asked = self.gpu_memory_bytes
        return asked // 2 if asked is not None and self.halves_batch else asked

    @property
    def base(self) -> int:
        """The fewest GPUs that it runs on."""
        return self.sizes[0] if self.sizes else self.gpus

    def shape_on(self, gpus: int) -> Shape:
        if gpus == self.gpus:
            return self.shape
        nodes = None if self.nodes is None else gpus * self.nodes // self.gpus
        return self.shape._replace(gpus=gpus, nodes=nodes)

    def _check_types(self) -> None:
        named = self.gpu_types or ()
        if self.or_gpu_types and not named:
            raise ValueError("other GPU types will do too, but none is named first")
        if len(set(named)) < len(named):
            raise ValueError(f"a GPU type is named twice: {named}")

    def _check_sizes(self) -> None:
        if list(self.sizes) != sorted(set(self.sizes)) or self.sizes[0] < 1:
            raise ValueError(f"sizes must be positive and rise: {self.sizes}")
        if self.gpus not in self.sizes:
            raise ValueError(
                f"it asks for {self.gpus} GPUs, which is none of its sizes {self.sizes}"
            )
        each = 1 if self.nodes is None else self.gpus // self.nodes
        for size in self.sizes:
            if size % each:
                raise ValueError(f"size {size} is no whole number of nodes with {each} GPUs each")


_SIZES = ("cpus_per_node", "memory_bytes_per_node", "gpu_memory_bytes", "core_memory_bytes")


class Slot(NamedTuple):
    """GPUs of one node; bit i of the mask is the GPU with index i. Or job cores of it: bit
    FIRST_CORE + i is the one with index i.
    """

    node_id: NodeId
    mask: int

    @property
    def gpu_indices(self) -> tuple[int, ...]:
        return tuple(indices(self.mask & GPU_BITS))

    @property
    def core_indices(self) -> tuple[int, ...]:
        return tuple(indices(self.mask >> FIRST_CORE))


class Allocation(NamedTuple):
    """Where an attempt runs: one slot per node, in rank order. Truth about who holds a GPU."""

    slots: tuple[Slot, ...]

    @property
    def width(self) -> int:
        slots = self.slots
        if len(slots) == 1:  # nearly always, and at every end
            return slots[0][1].bit_count()
        width = 0
        for _, mask in slots:
            width += mask.bit_count()
        return width

    @property
    def node_ids(self) -> tuple[NodeId, ...]:
        return tuple(slot.node_id for slot in self.slots)

    def __or__(self, other: Allocation) -> Allocation:
        """The GPUs of both, its own nodes first."""
        masks = {slot.node_id: slot.mask for slot in self.slots}
        for node_id, mask in other.slots:
            masks[node_id] = masks.get(node_id, 0) | mask
        return Allocation(tuple([Slot(*item) for item in masks.items()]))

    def __sub__(self, other: Allocation) -> Allocation:
        """Its GPUs that the other has not."""
        taken = {slot.node_id: slot.mask for slot in other.slots}
        rest = [Slot(node_id, mask & ~taken.get(node_id, 0)) for node_id, mask in self.slots]
        return Allocation(tuple([slot for slot in rest if slot.mask]))

    def overlaps(self, other: Allocation) -> bool:
        mine = {slot.node_id: slot.mask for slot in self.slots}
        return any(mine.get(slot.node_id, 0) & slot.mask for slot in other.slots)


def indices(mask: int) -> Iterator[int]:
    """Positions of the set bits, lowest first."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def core_mask(cores: int) -> int:
    """The bits of the first so many job cores of a node."""
    return (1 << cores) - 1 << FIRST_CORE


def mask_of(gpu_indices: Iterable[int]) -> int:
    mask = 0
    for index in gpu_indices:
        mask |= 1 << index
    return mask

"""How fast a GPU of each type is, relative to a reference that has speed 1.

An operator declares speeds of types, and a type that nobody declared has 1. Three units follow:

- Attained service, and the use that shares count, are in GPU-seconds of the reference. A GPU of
  speed 0.3 gives 0.3 of them in a second.
- The run time of a job that names one type is that on this type. Of any other job it is that on
  the reference (`Request.paced`). So is the work that it has done.
- An attempt keeps the speed of the GPUs on which it was placed (`Attempt.speed`), so that another
  declaration changes nothing that has been counted.

A gang on several types is as fast as its slowest GPU, unless its script shares the batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from dlq_master.model.resources import Request

REFERENCE = 1.0


class TypeSpeeds(NamedTuple):
    """The declared speeds by type. A name such as "t4" stands for all types that begin with "t4-".
    Of several names that stand for a type the longest counts.
    """

    declared: Mapping[str, float]

    def of(self, gpu_type: str) -> float:
        """The speed of this type; 1 if nobody declared one."""
        names = self.names(gpu_type)
        return self.declared[max(names, key=len)] if names else REFERENCE

    def names(self, gpu_type: str) -> list[str]:
        """The declared names that stand for this type."""
        return [name for name in self.declared if f"{gpu_type}-".startswith(f"{name}-")]

    def slowest(self, gpu_types: Iterable[str]) -> float:
        """Of GPUs of these types together; 1 if there are none."""
        declared = self.declared
        if not declared:
            return REFERENCE
        return min(map(self.of, gpu_types), default=REFERENCE)

    def pace(self, request: Request, gpu_type: str) -> float:
        """Seconds of the run time of such a job that a second on this type does."""
        return request.paced(self.of(gpu_type)) if self.declared else 1.0

    def reference_of(self, request: Request) -> float:
        """The speed of the GPUs on which the run time of such a job holds."""
        named = request.gpu_type
        return REFERENCE if named is None or request.or_gpu_types else self.of(named)

    def mean_pace(self, request: Request, gpus: Mapping[str, int]) -> float:
        """The pace on a GPU of these that it may get, on average; 1 if it may get none."""
        may_be = {kind: count for kind, count in gpus.items() if request.shape.may_be(kind)}
        total = sum(may_be.values())
        if not self.declared or not total:
            return 1.0
        return sum(self.pace(request, kind) * count for kind, count in may_be.items()) / total


class GangPart(NamedTuple):
    """So many GPUs of a gang, each of this speed."""

    gpus: int
    speed: float


def batch_shares(parts: Sequence[GangPart]) -> tuple[float, ...]:
    """Of each part, the share of the global batch that one of its GPUs takes, so that all GPUs end
    a step together. The shares of all GPUs make up 1.
    """
    whole = sum(part.gpus * part.speed for part in parts)
    return tuple([part.speed / whole for part in parts])


def shared_speed(parts: Sequence[GangPart]) -> float:
    """The speed of a gang that shares its batch so, for each of its GPUs. The GPU with the longest
    time for its share counts.
    """
    gpus = sum(part.gpus for part in parts)
    shares = batch_shares(parts)
    return min(part.speed / share for part, share in zip(parts, shares, strict=True)) / gpus


ALL_ALIKE = TypeSpeeds({})

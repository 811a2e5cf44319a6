"""The terms of a job: its spec without its program. Equal terms are checked only once.

Jobs that a loop submits differ in arguments, environment and name; the bytes of their terms are
equal. So terms are checked and read once, and of the next such job only the program is checked. If
terms cannot be checked without the program, the whole spec is.

Nothing is stored: a restarted master reads the next terms anew.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final, Generic, TypeVar

from dlq.v1.job_pb2 import JobSpec
from dlq_common.errors import InvalidRequest
from dlq_master.rpc.specs.deadlines import is_sized
from dlq_master.rpc.specs.spec import PROGRAM, check_program, check_terms, fill_in_terms, named

LARGEST_BYTES: Final = 4096  # of terms that are kept
MOST_KEPT: Final = 512
T = TypeVar("T")


class KnownTerms(Generic[T]):
    """The latest terms, and the values read from them."""

    def __init__(self, read: Callable[[JobSpec, JobSpec], T]) -> None:
        """`read` gets a spec with its defaults, and the same as its user wrote it, both without
        program.
        """
        self._read = read
        self._kept = lru_cache(maxsize=MOST_KEPT)(self._look)

    def of(self, spec: JobSpec) -> tuple[JobSpec, T] | None:
        """The spec after all checks, with its defaults, and the values of its terms.

        None: the spec is unchanged, and must be checked as a whole, which may tell why it is
        refused.
        """
        if spec.HasField("elastic") or is_sized(spec):
            return None
        terms = JobSpec()
        terms.CopyFrom(spec)
        for name in PROGRAM:
            terms.ClearField(name)  # type: ignore[arg-type]  # fields of a spec
        raw = terms.SerializeToString(deterministic=True)
        try:
            defaults, told = (self._kept if len(raw) <= LARGEST_BYTES else self._look)(raw)
            check_program(spec)
        except InvalidRequest:
            return None
        spec.MergeFrom(defaults)
        spec.name = named(spec)
        return spec, told

    def _look(self, raw: bytes) -> tuple[JobSpec, T]:
        """The defaults and the values of these terms."""
        asked, filled = JobSpec.FromString(raw), JobSpec.FromString(raw)
        check_terms(asked)
        fill_in_terms(filled)
        defaults = JobSpec(runtime=filled.runtime, working_directory=filled.working_directory)
        defaults.preempt.signal = filled.preempt.signal
        if filled.HasField("container"):
            defaults.container.network = filled.container.network
        return defaults, self._read(filled, asked)

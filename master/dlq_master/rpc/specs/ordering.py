"""Arrays, dependencies and begin times, checked as far as that needs no state. The loop checks the
rest.
"""

from __future__ import annotations

import re

from google.protobuf.timestamp_pb2 import Timestamp

from dlq.v1.job_pb2 import DependencyRelation, DependencySpec, JobSpec
from dlq_common.errors import InvalidRequest
from dlq_common.job_fields.limits import Lasts, refused
from dlq_common.job_fields.reading.ordering import MOST_TERMS
from dlq_common.text.arrays import IndexRange, count_of, expand
from dlq_common.text.instants import LATEST_S
from dlq_common.text.names import shown
from dlq_common.text.units import DAY
from dlq_master.model.jobs.eligible import Relation

MOST_TASKS = 10_000
LONGEST_DELAY_S = 366 * DAY

RELATIONS = {
    DependencyRelation.Value(f"DEPENDENCY_RELATION_{relation.name}"): relation
    for relation in Relation
}
_JOB = re.compile(r"[1-9][0-9]{0,17}(?:_[0-9]{1,9})?", re.ASCII)


def ranges_of(spec: JobSpec) -> list[IndexRange]:
    """The indexes of an array as the spec has them."""
    return [IndexRange(each.first, each.last, each.step or 1) for each in spec.array.ranges]


def check_array(spec: JobSpec) -> None:
    """InvalidRequest: these are not the indexes of an array."""
    if not spec.HasField("array"):
        return
    if len(spec.array.ranges) > MOST_TASKS:
        raise refused("array.ranges", f" has more than {MOST_TASKS} ranges")
    ranges = ranges_of(spec)
    try:
        count = count_of(ranges)
        if count > MOST_TASKS:
            why = f"--array has {count} tasks; one array has {MOST_TASKS} at most"
            raise InvalidRequest(why, field="spec.array.ranges")
        expand(ranges)
    except ValueError as error:
        raise refused("array.ranges", f": {error}") from None
    if spec.array.concurrent_count < 0:
        raise refused("array.concurrent_count", "is negative")


def check_dependency(asked: DependencySpec) -> None:
    """InvalidRequest: the terms make no sense. The loop checks that the jobs exist."""
    field = "dependency"
    if len(asked.terms) > MOST_TERMS:
        raise refused(field, f"names more than {MOST_TERMS} jobs")
    for term in asked.terms:
        relation = RELATIONS.get(term.relation)
        if relation is None:
            raise refused(field, "has a relation that this master does not know")
        if (relation is Relation.SINGLETON) != (not term.job_id):
            raise refused(field, f"{relation.value}: {shown(term.job_id)} is not what it takes")
        if term.job_id and not _JOB.fullmatch(term.job_id):
            raise refused(field, f"{shown(term.job_id)} is not a job: write 12, or 12_4 for a task")
        if term.HasField("delay_duration"):
            if relation is not Relation.AFTER:
                raise refused(field, f"{relation.value} takes no delay: only after does")
            Lasts(0.0, LONGEST_DELAY_S).check(field, term.delay_duration)


def check_begin(begin: Timestamp) -> None:
    """InvalidRequest: a job could never begin then."""
    if not (0 <= begin.seconds <= LATEST_S and 0 <= begin.nanos < 1_000_000_000):
        raise refused("begin_time", "must be an instant between 1970 and the year 3000")

"""The deadlines of a job."""

from __future__ import annotations

from dlq_common.job_fields.field import JobField
from dlq_common.job_fields.limits import OneOf
from dlq_common.job_fields.reading import deadlines, words
from dlq_common.job_fields.wire import Plain

TITLE = "Deadlines"
DEADLINE = JobField[object](
    key="deadline",
    read=deadlines.read_deadline,
    flag="--deadline TIME|DATE",
    help="End within 8h of the submission, by 18:00, or by 2026-12-01T08:00.",
    sample='"2d"',
    comment="From its submission on, or 2026-12-01T08:00. Or `soft_deadline`.",
)
SOFT_DEADLINE = JobField[object](
    key="soft_deadline",
    read=deadlines.read_soft,
    flag="--soft-deadline T:100,+10%:80,...",
    help="Several deadlines, and the worth of an end by each (100 to 1, never rising).",
    sample='"2d:100,+10%:80,+50%:20"',
    comment="Instead of deadline: several, and the worth of an end by each.",
)
ON_MISS = JobField(
    key="on_miss",
    read=words.one_of(deadlines.ON_MISS),
    flag="--on-miss continue|cancel",
    help="When the last deadline cannot be kept any more.  [default: continue]",
    sample='"cancel"',
    comment="When `deadline` cannot be kept any more. Default: continue.",
    wire=Plain[str]("on_miss"),
    limit=OneOf(deadlines.ON_MISS),
    label="on miss",
    editable=True,
)
DUE = JobField[object](
    key="due",
    read=deadlines.read_due,
    flag="--due TIME|DATE",
    help="Due date, with --weight: no promise, but machines may be rented for it.",
    sample='"8h"',
    comment="When it is to be done, with `weight`; machines may be rented for it.",
)
WEIGHT = JobField[object](
    key="weight",
    read=deadlines.read_weight,
    flag="--weight PRICE",
    help="Cost of each hour after --due; machines are rented for the job where they cost less.",
    sample="5.0",
    comment="Cost of each hour after `due`, in the currency of the pools' prices.",
)

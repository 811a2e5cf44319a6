"""An answer is read only if it is one down to the last number."""

from __future__ import annotations

from typing import Any

import pytest

from dlq_master.model.estimates.traffic import Packing
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.band import Band, Segment
from dlq_master.model.lease import LeaseKind
from dlq_master.model.plan import Plan, Repack, Reserve, Start
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.planner.plans import Answer, read_answer, write_answer
from dlq_master.planner.snapshot import Unreadable, dumps
from support.builders import an_allocation

REASON = Reason(ReasonCode.FITS)
START = Start(JobId(1), an_allocation(("n1", 3)), LeaseKind.BE, 300.0, REASON)
RESERVE = Reserve(JobId(1), Band.FILL, (Segment(1, 2),), 0, "holes", REASON, 0.2)
REPACK = Repack(Packing(0.5), REASON)  # its other limits are infinite


def wrong(change: Any, **fields: Any) -> bytes:
    return write_answer(Answer(1, (Plan((change._replace(**fields),)),)))


def test_what_was_written_is_read() -> None:
    answer = Answer(7, (Plan((START, RESERVE, REPACK), 4.0, again=True), Plan()), 0.25)
    assert read_answer(write_answer(answer)) == answer


@pytest.mark.parametrize(
    "data",
    [
        wrong(START, term_end_s=float("nan")),
        wrong(START, term_end_s=float("inf")),
        wrong(START, job_id=1.0),
        wrong(START, job_id="1"),
        wrong(START, job_id=True),
        wrong(START, allocation=((("n1", 3),),)),
        wrong(START, allocation=an_allocation(("n1", "3"))),  # type: ignore[arg-type]  # wrong
        wrong(START, kind="be"),
        wrong(START, reason=None),
        wrong(START, job_id=1 << 80),
        wrong(RESERVE, slots=[Segment(1, 2)]),
        wrong(RESERVE, slots=((1, 2),)),
        wrong(RESERVE, band=1),
        wrong(RESERVE, margin=float("nan")),
        wrong(REPACK, packing=Packing(float("nan"))),
        write_answer(Answer(1, (REASON,))),  # type: ignore[arg-type]  # wrong
        write_answer(Answer(1, (Plan((REASON,)),))),  # type: ignore[arg-type]  # wrong
        write_answer(Answer("1")),  # type: ignore[arg-type]  # wrong
        dumps((1,)),
        dumps(START),
        dumps(None),
    ],
)
def test_what_is_only_nearly_an_answer_is_none(data: bytes) -> None:
    with pytest.raises(Unreadable):
        read_answer(data)

"""When a job may be due."""

from __future__ import annotations

import pytest

from dlq_common.errors import InvalidRequest
from dlq_master.control.stimuli import AskedLateness
from support.rented import HOUR_S, Site


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.mark.parametrize("before_s", [0.0, 60.0])
@pytest.mark.parametrize("validate_only", [False, True])
def test_a_due_date_that_has_passed_is_refused(
    site: Site, before_s: float, validate_only: bool
) -> None:
    late = AskedLateness(1.0, at_s=site.master.clock.now_s() - before_s)
    with pytest.raises(InvalidRequest, match="the due date is in the past: ") as refused:
        site.master.submit(4, lateness=late, validate_only=validate_only)
    assert refused.value.field == "spec.lateness.due_time"
    assert refused.value.hint == "write an instant to come, or a time from now such as 8h"
    assert site.master.state.cluster.jobs == {}


def test_who_asks_again_is_answered_although_it_is_late_by_now(site: Site) -> None:
    late = AskedLateness(1.0 / HOUR_S, at_s=site.master.clock.now_s() + 10.0)
    first = site.master.submit(4, lateness=late, request_id="once")
    site.master.clock.advance(20.0)
    assert site.master.submit(4, lateness=late, request_id="once").job_id == first.job_id
    assert len(site.master.state.cluster.jobs) == 1

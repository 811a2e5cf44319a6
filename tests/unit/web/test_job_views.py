"""The parts of a job's page: reasons lead to their causes, the lease has its instants, and texts
that name an instant let the browser show it.
"""

from __future__ import annotations

import pytest

from dlq.v1 import job_pb2, job_service_pb2, lease_pb2
from dlq_common.text.wire import to_duration, to_timestamp
from dlq_web.pages import job_views
from dlq_web.pages.page import with_times
from dlq_web.pages.views import look_at
from support.wire_jobs import a_job, an_attempt

NOW_S = 1_795_473_000.0  # 2026-11-23T22:30:00Z
LOOK = look_at(NOW_S)


def explained(*reasons: job_pb2.WaitReason) -> job_service_pb2.ExplainJobResponse:
    return job_service_pb2.ExplainJobResponse(job=a_job(9, user="alice"), reasons=reasons)


def test_a_job_in_the_way_is_a_link_for_its_owner_and_for_operators() -> None:
    reason = job_pb2.WaitReason(
        code="resources", blocking_job_ids=["1", "2", "3"], blocking_users=["alice", "bob"]
    )
    (own,) = job_views.reasons_of(explained(reason), LOOK, every=False)
    assert own.jobs == [("1", True, ""), ("2", False, "bob"), ("3", False, "")]
    (all_,) = job_views.reasons_of(explained(reason), LOOK, every=True)
    assert [opens for _, opens, _ in all_.jobs] == [True, True, True]
    assert own.cause == ("/nodes", "the nodes")


def test_a_reason_tells_how_long_it_has_held_and_its_instants_are_utc() -> None:
    reason = job_pb2.WaitReason(
        code="begin_time", detail="not before 2026-11-24T08:00:00Z",
        spent_duration=to_duration(61),
    )  # fmt: skip
    (told,) = job_views.reasons_of(explained(reason), LOOK, every=False)
    assert (told.text, told.spent) == ("not before 2026-11-24 08:00 UTC", "00:01:01")
    assert told.cause is None


def test_a_dependency_leads_to_the_jobs_that_must_come_first() -> None:
    job = a_job(9, dependency="afterok:12_3,afterany:14?after:12_3+5,singleton")
    assert job_views.depends_of(job) == ["12_3", "14"]


def test_the_lease_is_a_bar_of_what_was_what_is_left_and_the_hold() -> None:
    attempt = an_attempt(9, 1)
    attempt.assign_time.CopyFrom(to_timestamp(NOW_S - 300))
    attempt.lease.CopyFrom(
        lease_pb2.Lease(
            term_end_time=to_timestamp(NOW_S + 300), hold_until_time=to_timestamp(NOW_S + 900)
        )
    )
    bar, words = job_views.lease_of(attempt, LOOK)
    assert [(share.left, share.width) for share in bar] == [(0, 250), (250, 250), (500, 500)]
    assert words[1] == ("term ends", "2026-11-23 22:35 UTC (in 5m00s)")
    assert job_views.lease_of(None, LOOK) == ([], [])


def test_a_term_that_is_over_leaves_no_part_of_it() -> None:
    attempt = an_attempt(9, 1)
    attempt.assign_time.CopyFrom(to_timestamp(NOW_S - 300))
    attempt.lease.term_end_time.CopyFrom(to_timestamp(NOW_S - 100))
    attempt.lease.hold_until_time.CopyFrom(to_timestamp(NOW_S + 300))
    bar, _ = job_views.lease_of(attempt, LOOK)
    assert [share.label.partition(":")[0] for share in bar] == [
        "held so far",
        "more, if the master stays silent",
    ]


def test_output_begins_with_the_rank_that_failed_first() -> None:
    attempts = [an_attempt(9, 1), an_attempt(9, 2, "failed")]
    attempts[1].first_failed_rank = 3
    attempts[1].ranks.extend(job_pb2.Rank(node_rank=rank) for rank in range(5))
    assert job_views.output_of(attempts) == (2, 7, 3)
    assert job_views.output_of([]) is None


def test_every_fact_stands_on_the_page_once() -> None:
    job = a_job(9, lost_gpu_seconds=40.0, preemption_count=2)
    job.promise.state, job.promise.detail = "guaranteed", "it fits"
    job.promise.slack_duration.CopyFrom(to_duration(-90))
    cards = job_views.cards_of(job_service_pb2.GetJobResponse(job=job), LOOK)
    names = [name for part in cards for name, _ in part]
    assert len(names) == len(set(names))
    assert ("slack", "-00:01:30") in cards.promise
    assert ("lost", "up to 40 GPU-seconds") in cards.saving


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("at 2026-11-23 22:30 UTC (in 1m00s)",
         'at <time datetime="2026-11-23T22:30Z">2026-11-23 22:30 UTC</time> (in 1m00s)'),
        ("2026-11-23 22:30:05 UTC", '<time datetime="2026-11-23T22:30:05Z">2026-11-23 22:30:05 '
         "UTC</time>"),
        ("<b>2026-11-23 22:30 UTC</b>", '&lt;b&gt;<time datetime="2026-11-23T22:30Z">2026-11-23 '
         "22:30 UTC</time>&lt;/b&gt;"),
        ("--deadline 2026-11-23T22:30:00Z", "--deadline 2026-11-23T22:30:00Z"),
        ("", ""),
    ],
)  # fmt: skip
def test_an_instant_in_a_text_is_one_for_the_browser(text: str, html: str) -> None:
    assert str(with_times(text)) == html

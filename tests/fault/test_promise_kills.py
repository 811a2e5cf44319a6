"""A master dies at any passage of any failpoint of a story of promises: every job runs once, every
promise is kept or given up in words, what is used is counted once, and whoever asks again gets the
same answer.

Two passages of each place are part of `make test`, all of them of `make torture`.
"""

from __future__ import annotations

import pytest

from dlq_master.control.loop import failpoints
from dlq_master.model.attempts.deadlines import due_s
from dlq_master.model.jobs.job import JobState
from support.crashing_site import STORY, CrashingSite
from support.extent import spread

GIVEN_UP = ("promise_broken", "promise_at_risk", "promise_overrun")
# Parts of the story: in one a promise is made, in the other somebody leaves at a boundary.
SOME = {"before_commit": (0.2, 0.5), "after_commit": (0.17, 0.6), "before_send": (0.25, 0.7)}


@pytest.fixture(scope="module")
def passages() -> dict[str, int]:
    """How often the story passes each place when nobody dies."""
    site = CrashingSite()
    told = site.run()
    kept = judge(site)
    assert kept == {"strict", "wide", "late"}, "these are promised, and kept"
    assert any(job.preemptions for job in site.jobs()), "somebody leaves at a boundary"
    return dict(told.passages)


def judge(site: CrashingSite) -> set[str]:
    """Every job has run to its end once. Returns whose promise was kept."""
    told, store = site.told, site.master.store
    jobs = {job.name: job for job in site.jobs()}
    assert {name: job.job_id for name, job in jobs.items()} == told.answers
    assert [job.state for job in jobs.values()] == [JobState.COMPLETED] * len(STORY)
    for job in jobs.values():
        ends = [key for key in told.ended if key.job_id == job.job_id]
        assert [told.ended[key] for key in ends] == [1], f"{job.name} completed once"
        tries = [one for one in store.attempts(job.job_id) if one.started_time_s is not None]
        used_s = [(one.ended_time_s or 0.0) - (one.started_time_s or 0.0) for one in tries]
        assert job.total_gpu_s == sum(used_s) * job.request.gpus, f"{job.name} is charged once"
    kept = set()
    for name, asked in STORY.items():
        if asked.due_s is None:
            continue
        job = jobs[name]
        story = store.events(0, 100_000, job.job_id)
        words = [event.kind for event in story if event.kind in ("promise_made", "promise_refused")]
        assert len(words) == 1, f"{name} was judged once"
        if words == ["promise_refused"]:
            continue
        by_s = due_s(job, 0)
        if job.end_time_s is not None and job.end_time_s <= by_s:
            kept.add(name)
        else:
            given_up = [event.time_s for event in story if event.kind in GIVEN_UP]
            assert given_up, f"{name} was broken in silence"
            assert min(given_up) <= by_s, f"{name} was told too late"
    return kept


@pytest.mark.parametrize("name", spread(failpoints.NAMES, 2))
def test_some_passages(name: str, passages: dict[str, int]) -> None:
    parts = SOME.get(name, (0.3, 0.8))
    assert all(dies_at(name, round(part * passages[name])) for part in parts)


@pytest.mark.torture
@pytest.mark.parametrize("name", failpoints.NAMES)
def test_every_passage(name: str, passages: dict[str, int]) -> None:
    died = [dies_at(name, number) for number in range(1, passages[name] + 1)]
    print(f"\n{name}: the master died at each of {len(died)} passages")  # noqa: T201 - a figure
    assert all(died)


def dies_at(name: str, number: int) -> bool:
    """The story with a crash there."""
    site = CrashingSite(f"{name}:{number}")
    site.run()
    judge(site)
    return site.told.crashes == 1

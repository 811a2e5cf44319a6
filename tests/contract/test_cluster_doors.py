"""The port to a listed cluster: the fake of tests and the real line keep the same promises."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import grpc
import pytest

from dlq.v1 import forecast_pb2, job_pb2
from dlq.v1 import forecast_service_pb2 as wire
from dlq_broker.doors import (
    Accepted,
    ClusterDoor,
    Declined,
    JobWait,
    SavedThere,
    StillLeaves,
    Unheard,
    WaitState,
    Withdrawn,
)
from dlq_broker.offers import ClusterOffer, NoOffer
from dlq_broker.over_wire import WireCluster
from dlq_client.line.connection import Connection
from dlq_common.text.wire import from_timestamp, to_timestamp
from support.fake_clusters import FakeCluster
from support.fake_master import FakeMaster
from support.wire_jobs import a_job

SPEC = job_pb2.JobSpec(name="train", command=["true"]).SerializeToString()
OTHER = job_pb2.JobSpec(name="other", command=["true"]).SerializeToString()


class Site(Protocol):
    """A cluster behind a door, and how a test makes it behave."""

    @property
    def door(self) -> ClusterDoor: ...
    def lose_answer(self, call: str) -> None:
        """The next submission, or withdrawal, acts and is not answered."""
        ...

    def job_waits(self) -> tuple[str, int]:
        """A job that waits there: its number and its version."""
        ...

    def job_runs(self) -> str:
        """A job that runs there, and has saved once: its number."""
        ...

    def leaves(self, job: str) -> None:
        """It is off its GPUs."""
        ...

    def become(self, job: str, state: str, waited_s: float | None = None) -> None:
        """A job there is in this state, with so long a wait for its start."""
        ...

    def refuse(self, why: str) -> None: ...
    def cut_off(self) -> None: ...
    def jobs(self) -> int: ...


@dataclass
class FakeSite:
    door: FakeCluster = field(default_factory=lambda: FakeCluster("a"))

    def lose_answer(self, call: str) -> None:
        self.door.line.append("lost")

    def job_waits(self) -> tuple[str, int]:
        self.door.versions["5"] = 4
        return "5", 4

    def job_runs(self) -> str:
        self.door.versions["6"] = 4
        self.door.running.add("6")
        return "6"

    def leaves(self, job: str) -> None:
        self.door.saves_for = 0

    def become(self, job: str, state: str, waited_s: float | None = None) -> None:
        if waited_s is not None:
            self.door.starts[job] = JobWait(WaitState.STARTED, waited_s)
            return
        waits = state == "queued"
        self.door.starts[job] = JobWait(WaitState.WAITS if waits else WaitState.LEFT)

    def refuse(self, why: str) -> None:
        self.door.refuses = why

    def cut_off(self) -> None:
        self.door.away = True

    def jobs(self) -> int:
        return len(self.door.jobs)


NOW_S = 5_000.0


class WireSite:
    def __init__(self) -> None:
        self.master = FakeMaster()
        self.master.estimate = wire.EstimateJobResponse(estimate_time=to_timestamp(1.0))
        self._line = Connection(self.master.identity_of(), patience_s=0.0)
        self.door = WireCluster("a", "alice@lab", lambda: self._line, NOW_S)

    def lose_answer(self, call: str) -> None:
        self.master.lose_replies(call, 1)

    def job_waits(self) -> tuple[str, int]:
        self.master.jobs["5"] = a_job(5, "queued", version=4)
        return "5", 4

    def job_runs(self) -> str:
        saved = job_pb2.Checkpoint(path="/shared/run/6/1/step-3")
        self.master.jobs["6"] = a_job(6, "running", version=4, checkpoint=saved)
        self.master.specs["6"] = job_pb2.JobSpec(name="train", command=["true"])
        self.master.specs["6"].checkpoint.directory = "/shared/run"
        return "6"

    def leaves(self, job: str) -> None:
        self.master.jobs[job].ClearField("attempt_state")
        self.master.jobs[job].version += 1

    def become(self, job: str, state: str, waited_s: float | None = None) -> None:
        made = a_job(int(job), state)
        if waited_s is not None:
            made.start_time.CopyFrom(to_timestamp(from_timestamp(made.submit_time) + waited_s))
        self.master.jobs[job] = made

    def refuse(self, why: str) -> None:
        for method in ("SubmitJob", "EstimateJob"):
            code = grpc.StatusCode.FAILED_PRECONDITION
            self.master.refuse(method, code, "UNSATISFIABLE", what=why)

    def cut_off(self) -> None:
        self.master.stop()

    def jobs(self) -> int:
        return sum(1 for job in self.master.submitted.values() if job)

    def close(self) -> None:
        self._line.close()
        self.master.stop()


@pytest.fixture(params=["fake", "wire"])
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    if request.param == "fake":
        yield FakeSite()
        return
    made = WireSite()
    yield made
    made.close()


def test_an_offer_is_made_and_changes_nothing(site: Site) -> None:
    offer = site.door.offer(SPEC, 5.0)
    assert isinstance(offer, ClusterOffer)
    assert (offer.cluster, site.jobs()) == ("a", 0)


def test_a_repeat_of_a_key_is_the_same_job_and_another_key_another_one(site: Site) -> None:
    first = site.door.submit(SPEC, "k")
    assert isinstance(first, Accepted)
    assert site.door.submit(SPEC, "k") == first
    assert site.door.submit(SPEC, "l") != first
    assert isinstance(site.door.submit(OTHER, "k"), Declined)
    assert site.jobs() == 2


def test_a_submission_whose_answer_is_lost_has_left_and_its_repeat_names_the_job(
    site: Site,
) -> None:
    site.lose_answer("SubmitJob")
    lost = site.door.submit(SPEC, "k")
    assert isinstance(lost, Unheard)
    assert lost.left
    assert site.jobs() == 1
    assert isinstance(site.door.submit(SPEC, "k"), Accepted)
    assert site.jobs() == 1


def test_a_withdrawal_names_the_job_or_uses_up_the_key_for_good(site: Site) -> None:
    there = site.door.submit(SPEC, "k")
    assert site.door.withdraw("k") == there
    assert site.door.withdraw("l") == Withdrawn()
    assert isinstance(site.door.submit(SPEC, "l"), Declined)
    assert site.door.withdraw("l") == Withdrawn()
    assert site.jobs() == 1


def test_a_withdrawal_whose_answer_is_lost_is_asked_again(site: Site) -> None:
    site.lose_answer("WithdrawSubmission")
    assert isinstance(site.door.withdraw("k"), Unheard)
    assert site.door.withdraw("k") == Withdrawn()


def test_a_refusal_has_its_words_and_makes_nothing(site: Site) -> None:
    site.refuse("too wide")
    offer, tried = site.door.offer(SPEC, 5.0), site.door.submit(SPEC, "k")
    assert isinstance(offer, NoOffer)
    assert (offer.why, offer.reason, offer.silent) == ("too wide", "UNSATISFIABLE", False)
    assert isinstance(tried, Declined)
    assert tried.why == "too wide"
    assert site.door.withdraw("k") == Withdrawn()
    assert site.jobs() == 0


def test_a_cluster_that_is_cut_off_is_silent_and_nothing_has_left(site: Site) -> None:
    site.cut_off()
    offer, tried = site.door.offer(SPEC, 1.0), site.door.submit(SPEC, "k")
    assert isinstance(offer, NoOffer)
    assert offer.silent
    assert isinstance(tried, Unheard)
    assert not tried.left
    assert isinstance(site.door.withdraw("k"), Unheard)


def test_a_waiting_job_is_taken_once_and_a_changed_one_never(site: Site) -> None:
    job, version = site.job_waits()
    assert isinstance(site.door.offer_of(job, 5.0), ClusterOffer)
    assert isinstance(site.door.take(job, version + 1, "k"), Declined)
    assert site.door.take(job, version, "l") == Accepted(job)
    assert site.door.take(job, version, "l") == Accepted(job)
    assert site.door.withdraw("l") == Accepted(job)
    assert site.door.withdraw("k") == Withdrawn()


def test_an_order_whose_answer_is_lost_is_proven(site: Site) -> None:
    job, version = site.job_waits()
    site.lose_answer("CancelJob")
    assert isinstance(site.door.take(job, version, "k"), Unheard)
    assert site.door.withdraw("k") == Accepted(job)


def test_a_running_job_is_paused_saves_leaves_and_can_be_taken(site: Site) -> None:
    job = site.job_runs()
    assert isinstance(site.door.left(job), Declined)
    assert site.door.pause(job, "k") == Accepted(job)
    assert site.door.withdraw("k") == Accepted(job)
    assert site.door.left(job) == StillLeaves()
    site.leaves(job)
    saved = site.door.left(job)
    assert isinstance(saved, SavedThere)
    assert saved.more
    assert isinstance(site.door.take(job, saved.version - 1, "l"), Declined)
    assert site.door.take(job, saved.version, "m") == Accepted(job)


def test_a_paused_job_goes_on_and_a_repeat_of_the_pause_does_not_stop_it_again(site: Site) -> None:
    job = site.job_runs()
    site.lose_answer("PauseJob")
    assert isinstance(site.door.pause(job, "k"), Unheard)
    assert site.door.resume(job, "l") == Accepted(job)
    assert site.door.pause(job, "k") == Accepted(job)
    assert isinstance(site.door.left(job), Declined)
    assert site.door.withdraw("n") == Withdrawn()
    assert isinstance(site.door.pause(job, "n"), Declined)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "TRY_AGAIN"),
        (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED"),
    ],
)
def test_a_refusal_of_the_moment_says_nothing_about_a_paused_job(
    code: grpc.StatusCode, reason: str
) -> None:
    """Else a job that was paused for a move would stay paused."""
    site = WireSite()
    job = site.job_runs()
    assert site.door.pause(job, "k") == Accepted(job)
    for method in ("GetJob", "ResumeJob"):
        site.master.refuse_once(method, code, reason, what="not now")
    assert isinstance(site.door.left(job), Unheard)
    assert isinstance(site.door.resume(job, "l"), Unheard)
    assert site.door.resume(job, "l") == Accepted(job)
    site.close()


def test_a_checkpoint_moves_with_its_job_into_a_place_of_its_own() -> None:
    site = WireSite()
    try:
        job = site.job_runs()
        site.door.pause(job, "k")
        site.leaves(job)
        saved = site.door.left(job)
        assert isinstance(saved, SavedThere)
        spec = site.master.specs[job].SerializeToString() + saved.more
        moved = job_pb2.JobSpec.FromString(spec)
        assert (moved.name, moved.checkpoint.directory) == ("train", "/shared/run/a-6")
        assert moved.checkpoint.resume_from == "/shared/run/6/1/step-3"
        site.master.specs[job].checkpoint.marker = "*/done"
        assert site.door.left(job) == SavedThere(saved.version, b"")
    finally:
        site.close()


def test_the_waits_of_jobs_are_told_and_unknown_ones_left_out(site: Site) -> None:
    site.become("7", "running", 90.0)
    site.become("8", "queued")
    site.become("9", "cancelled")
    site.become("10", "held")
    told = site.door.waits(["7", "8", "9", "10", "11"], 5.0)
    assert told == {
        "7": JobWait(WaitState.STARTED, 90.0),
        "8": JobWait(WaitState.WAITS),
        "9": JobWait(WaitState.LEFT),
        "10": JobWait(WaitState.LEFT),
    }


def test_a_cluster_that_is_cut_off_tells_no_waits(site: Site) -> None:
    site.become("7", "running", 90.0)
    site.cut_off()
    assert site.door.waits(["7"], 1.0) == {}


def test_a_forecast_counts_from_now_whatever_the_clock_of_its_cluster_says() -> None:
    site = WireSite()
    try:
        at_s = 1_000_000.0
        site.master.estimate = wire.EstimateJobResponse(
            estimate_time=to_timestamp(at_s),
            start=forecast_pb2.TimeRange(likely_time=to_timestamp(at_s + 60.0)),
        )
        offer = site.door.offer(SPEC, 5.0)
        assert isinstance(offer, ClusterOffer)
        assert offer.start == (math.inf, NOW_S + 60.0, math.inf)
    finally:
        site.close()

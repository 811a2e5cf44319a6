"""What `dlq show`, `dlq why` and `dlq profile show JOB` tell of a job's traffic, and from what."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlq.v1 import job_pb2
from dlq_master.model.estimates.traffic import Packing, TrafficProfile
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.recording import Belief, Cause, Found, Recording, Told
from dlq_master.model.resources import Request
from dlq_master.rpc.jobs.traffic_view import traffic_message
from dlq_profiler.job import job_of
from support.cli_run import Dlq
from support.fake_clock import FakeClock
from support.fake_control import FakeRead
from support.fake_master import FakeMaster
from support.told_traffic import a_rank
from support.wire_jobs import a_job

pytestmark = pytest.mark.integration

JOB = Job(JobId(17), "alice", "train", Request(gpus=2), 0.0, family="alice/vgg")
KNOWN = Told("address-recurrence", "checked")
FOUND = Found(KNOWN, Told("address-recurrence", "assumed"), 8, 0.5, 1e8, 1e8, 0.7, 0.743)


class Read(FakeRead):
    """A read model whose policy packs."""

    def packing(self) -> Packing | None:
        return Packing(0.378, 0.05, 1.05, tolerated=1.05)


def a_recording(number: int = 1, **changes: object) -> Recording:
    recording = Recording(
        key=AttemptKey(JobId(17), number),
        epoch=1,
        family="alice/vgg",
        gpu_type="H100",
        gpus=2,
        node_ids=(NodeId("gpu01"),),
        spread=False,
        cause=Cause.FIRST,
        order_time_s=1_800_000_000.0,
        window_s=120.0,
        told=(0,),
        found=FOUND,
        found_time_s=1_800_000_060.0,
    )
    return recording._replace(**changes)  # type: ignore[arg-type] # a builder takes any field


def read_of(*recordings: Recording, belief: Belief | None = None) -> Read:
    read = Read(FakeClock(), all_recordings=list(recordings))
    if belief is not None:
        read.beliefs[JOB.job_id] = belief
    return read


def believed(**profile: float) -> tuple[Job, Read]:
    together = a_recording()
    spread = a_recording(2, spread=True, node_ids=(NodeId("gpu01"), NodeId("gpu02")), told=(0, 1))
    known = TrafficProfile(skew=0.743, rho=0.2, model_bytes=1e8)._replace(**profile)
    belief = Belief(known, together, True, together, spread)
    return JOB._replace(profile=known), read_of(together, spread, belief=belief)


@pytest.fixture
def master() -> Iterator[FakeMaster]:
    fake = FakeMaster()
    fake.jobs = {"17": a_job(17, name="wide", wait_code="consolidation")}
    fake.reasons["17"] = [job_pb2.WaitReason(code="consolidation", detail="needs 2 GPUs together")]
    yield fake
    fake.stop()


def test_show_says_what_is_believed_how_sure_it_is_and_from_which_start(
    master: FakeMaster, dlq: Dlq
) -> None:
    master.traffic["17"] = traffic_message(*believed(slowdown=3.0))
    text = dlq("show", "17").out

    assert "100 MB every 0.5 s, rho 0.2" in text
    assert "its attempt 1 on 2 H100, nodes: 1" in text
    assert "checked, by address-recurrence" in text
    assert "70.0% to 74.3% of a model of 100 MB; assumed, by address-recurrence" in text
    assert "takes 3.00 times as long (attempt 17.2 against 17.1)" in text
    assert "on few nodes: spread over nodes it took 3.00 times as long (limit 1.05)" in text
    assert "attempt 2 (its first): checked" in text


def test_why_says_what_the_placement_goes_by(master: FakeMaster, dlq: Dlq) -> None:
    master.traffic["17"] = traffic_message(*believed())
    text = dlq("why", "17").out
    assert "placement: on few nodes: its largest tensor is 74% of its model (PACKLIMIT" in text
    assert "traffic: 100 MB every 0.5 s, rho 0.2, from its attempt 1" in text

    master.traffic["17"] = traffic_message(JOB, read_of())
    text = dlq("why", "17").out
    assert "traffic: not known; its first start will tell" in text

    waiting = a_recording(told=(), found=None, found_time_s=None)
    master.traffic["17"] = traffic_message(JOB, read_of(waiting))
    assert "attempt 1 (its first): 0 of 1 nodes have told" in dlq("why", "17").out


def test_why_says_what_the_placement_of_a_job_that_runs_went_by(
    master: FakeMaster, dlq: Dlq
) -> None:
    master.reasons.clear()
    master.traffic["17"] = traffic_message(*believed())
    told = {}
    for state in ("running", "completed"):
        master.jobs["17"] = a_job(17, state, name="wide")
        told[state] = dlq("why", "17").out
    assert "placement: on few nodes: its largest tensor is 74% of its model" in told["running"]
    assert "traffic: 100 MB every 0.5 s, rho 0.2, from its attempt 1" in told["running"]
    assert "traffic" not in told["completed"]


def test_a_policy_may_take_the_unknown_as_they_come(master: FakeMaster, dlq: Dlq) -> None:
    class Open(Read):
        def packing(self) -> Packing | None:
            return Packing(0.378, unknown=None)

    read = Open(FakeClock())
    assert traffic_message(JOB, read).placement == "fewest"
    master.traffic["17"] = traffic_message(JOB, read)
    assert "placement: on as few nodes as can be had now" in dlq("why", "17").out
    known = JOB._replace(profile=TrafficProfile(skew=0.9))
    assert traffic_message(known, read).placement == "together"


def test_json_has_the_same_keys_whatever_is_known(master: FakeMaster, dlq: Dlq) -> None:
    nothing = json.loads(dlq("why", "17", "--json").out)["jobs"][0]["traffic"]
    master.traffic["17"] = traffic_message(*believed())
    told = json.loads(dlq("show", "17", "--json").out)["jobs"][0]["traffic"]

    assert nothing.keys() == told.keys()
    assert nothing["belief"] is None
    assert (told["placement"], told["belief"]["rho"], told["belief"]["slowdown"]) == (
        "together", 0.2, None,
    )  # fmt: skip
    assert [start["told_count"] for start in told["starts"]] == [1, 2]


def test_the_profile_of_a_job_is_printed_as_that_of_a_file(
    master: FakeMaster, dlq: Dlq, tmp_path: Path
) -> None:
    profile = job_of([a_rank(0), a_rank(1)])
    stored = tmp_path / "profile.json"
    stored.write_text(profile.json())
    master.profiles["17"] = profile.json().encode()

    head, _, rest = dlq("profile", "show", "17", "--link", "8").out.partition("\n")
    assert head == "of attempt 17.1"
    assert rest == dlq("profile", "show", str(stored), "--link", "8").out
    facts = json.loads(dlq("profile", "show", "17", "--json").out)
    assert (facts["attempt"], facts["model_bytes"]) == ("17.1", 1e8)


def test_a_job_without_a_profile_says_how_far_it_is(master: FakeMaster, dlq: Dlq) -> None:
    said = dlq("profile", "show", "17")
    assert (said.code, said.out) == (3, "")
    assert "none of its starts was recorded" in said.err
    waiting = a_recording(told=(), found=None, found_time_s=None)
    master.traffic["17"] = traffic_message(JOB, read_of(waiting))
    assert "0 of 1 nodes have told" in dlq("profile", "show", "17").err
    assert "--ranks is for recordings" in dlq("profile", "show", "--ranks", "2", "17").err

"""`dlq submit --to` and global names, against two masters of canned answers on real lines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from syrupy.assertion import SnapshotAssertion

from dlq.v1 import job_pb2
from dlq_broker import stage_program
from dlq_broker.records import HandOverFiles
from dlq_cli.clusters import moving_on
from dlq_common.clock import SteadyClock
from dlq_common.text.wire import from_timestamp, to_timestamp
from support.cli_run import Dlq, Said
from support.fake_master import FakeMaster
from support.wire_jobs import a_job, an_estimate

pytestmark = pytest.mark.integration
SAVED = job_pb2.Checkpoint(path="/shared/run/5/1/step-3")


class Two(NamedTuple):
    """Two clusters, and a user who has both in a list."""

    a: FakeMaster
    b: FakeMaster
    home: Path
    dlq: Dlq

    def to(self, *words: str, patience_s: float = 1.0) -> Said:
        given = ("--to", "any", "--gpus", "1", "--name", "train", *words, "--", "true")
        return self.dlq("submit", *given, patience_s=patience_s)

    @property
    def jobs(self) -> list[str]:
        """All that were accepted, by global name."""
        sites = (("a", self.a), ("b", self.b))
        return [f"{name}:{job}" for name, site in sites for job in site.submitted.values() if job]


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    a, b = FakeMaster(), FakeMaster()
    a.estimate, b.estimate = an_estimate(7_200), an_estimate(3_600)
    home = a.home(tmp_path / "home")
    b.home(tmp_path / "other")
    (home / "clusters.toml").write_text(
        '[clusters.a]\nhome = "."\nprice_per_gpu_hour = 0.5\n[clusters.b]\nhome = "../other"\n'
    )
    yield Two(a, b, home, Dlq(home))
    a.stop()
    b.stop()


def test_the_best_offer_gets_the_job_and_every_place_has_a_reason(
    two: Two, snapshot: SnapshotAssertion
) -> None:
    said = two.to()
    assert (said.code, said.out) == (0, "Submitted batch job b:17\n")
    assert re.sub(r"≈\S+", "≈INSTANT", said.err) == snapshot
    assert two.jobs == ["b:17"]
    cheap = two.to("--parsable", "--choose", "cheapest")
    assert cheap.out == "b:18\n"


def test_a_cluster_that_starts_jobs_late_loses_the_next_one(two: Two) -> None:
    hands: list[Any] = []
    for _ in range(3):
        hand = json.loads(two.to("--json").out)["handover"]
        hands.append(hand)
        job = a_job(int(hand["job_id"]), "running")
        job.start_time.seconds = job.submit_time.seconds + 36_000
        two.b.jobs[hand["job_id"]] = job
    assert [hand["cluster"] for hand in hands] == ["b", "b", "a"]
    (late,) = [offer for offer in hands[-1]["offers"] if offer["cluster"] == "b"]
    assert late["late_seconds"] > 3_600
    assert late["late_job_count"] == 2
    assert "later than offered, as its last" in two.to("--test-only").err


def test_a_question_alone_submits_nothing(two: Two, snapshot: SnapshotAssertion) -> None:
    said = two.to("--test-only", "--json")
    assert (said.code, two.jobs) == (0, [])
    assert json.loads(re.sub(r"2[0-9-]{9}T[0-9:.]+Z", "INSTANT", said.out)) == snapshot


def test_a_repeat_under_the_same_key_is_the_same_job(two: Two) -> None:
    first = two.to("--request-id", "k", "--parsable")
    two.b.estimate = an_estimate(99_999)
    again = two.to("--request-id", "k", "--parsable")
    assert (first.out, again.out, two.jobs) == ("b:17\n", "b:17\n", ["b:17"])
    other = two.to("--request-id", "k", "--nice", "3")
    assert other.code == 1
    assert "is of another job" in other.err


def test_a_lost_answer_is_asked_for_again_at_the_same_cluster(two: Two) -> None:
    two.b.lose_replies("SubmitJob", 2)
    said = two.to("--parsable", patience_s=20.0)
    assert (said.out, two.jobs) == ("b:17\n", ["b:17"])


def test_an_open_hand_over_is_told_settled_and_never_goes_elsewhere(two: Two) -> None:
    two.b.lose_replies("SubmitJob", 1_000)
    said = two.to()
    assert said.code == 69
    assert "cluster b may have the job" in said.err
    (hand,) = HandOverFiles(two.home / "handovers").all()
    assert hand.in_doubt
    assert "b:?" in two.dlq("handovers").out
    still = two.dlq("handovers", "--settle", "--json", patience_s=0.0)
    assert (still.code, json.loads(still.out)["handovers"][0]["state"]) == (69, "open")
    assert "cluster b may have the job" in still.err
    two.b.lose_replies("SubmitJob", 0)
    settled = two.dlq("handovers", "--settle", "--json")
    assert json.loads(settled.out)["handovers"][0]["global_name"] == "b:17"
    assert two.jobs == ["b:17"]
    assert two.dlq("handovers", "--settle").err == "dlq: no hand-over is open\n"


def test_a_cluster_of_a_former_release_keeps_a_hand_over_in_doubt(two: Two) -> None:
    two.b.lose_replies("SubmitJob", 1)
    two.b.refuse("WithdrawSubmission", grpc.StatusCode.UNIMPLEMENTED, "")
    two.to(patience_s=0.0)
    (hand,) = HandOverFiles(two.home / "handovers").all()
    said = two.dlq("handovers", "--give-up", hand.number, patience_s=0.0)
    assert said.code == 69
    assert "former release" in said.out
    assert two.jobs == ["b:17"]


def test_giving_up_names_the_job_that_is_there(two: Two) -> None:
    two.b.lose_replies("SubmitJob", 1_000)
    two.to()
    (hand,) = HandOverFiles(two.home / "handovers").all()
    said = two.dlq("handovers", "--give-up", hand.number)
    assert said.code == 0
    assert said.out.splitlines()[1].split()[:2] == ["placed", "b:17"]


def test_a_refusal_after_the_offer_goes_to_the_next_cluster(two: Two) -> None:
    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    two.b.refuse("SubmitJob", code, "QUOTA_EXCEEDED", what="alice has 3 jobs")
    said = two.to("--json")
    hand = json.loads(said.out)["handover"]
    assert hand["global_name"] == "a:17"
    assert hand["story"] == ["b refused it: alice has 3 jobs", "a has it as job 17"]


def test_a_cluster_that_is_cut_off_is_only_silent(two: Two) -> None:
    two.b.stop()
    said = two.to("--within", "3s")
    assert said.out == "Submitted batch job a:17\n"
    assert "silent" in said.err


def test_when_none_offers_nothing_is_submitted_and_all_reasons_are_told(two: Two) -> None:
    for site in (two.a, two.b):
        site.refuse(
            "EstimateJob", grpc.StatusCode.FAILED_PRECONDITION, "UNSATISFIABLE", what="too wide"
        )
    said = two.to()
    assert (said.code, two.jobs) == (5, [])
    assert "a: too wide" in said.err
    told = two.to("--json")
    assert (told.code, json.loads(told.out)["chosen"]) == (5, None)
    two.a.stop()
    assert two.to("--within", "3s").code == 69


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--to", "c"), 2),
        (("--to", "a,b", "--after", "17"), 2),
        (("--to", "any", "--interactive"), 2),
        (("--to", "any", "--choose", "best"), 2),
        (("--to", "any", "--within", "2h"), 2),
        (("--within", "5s"), 2),
    ],
)
def test_what_cannot_be_meant_is_refused(two: Two, words: tuple[str, ...], code: int) -> None:
    said = two.dlq("submit", *words, "--gpus", "1", "--", "true")
    assert (said.code, two.jobs, said.out) == (code, [], "")


def test_a_global_name_means_the_job_of_that_cluster(two: Two) -> None:
    two.a.jobs["17"] = a_job(17, "running", name="here")
    two.b.jobs["17"] = a_job(17, "queued", name="there")
    two.b.reasons["17"] = [job_pb2.WaitReason(code="resources", detail="it is full")]
    two.b.logs[("17", 1, 0)] = b"from b\n"
    assert "here" in two.dlq("status", "17").out
    assert "there" in two.dlq("status", "b:17").out
    assert "it is full" in two.dlq("why", "b:17").out
    cancelled = two.dlq("cancel", "--json", "b:17")
    assert json.loads(cancelled.out)["jobs"][0]["name"] == "there"
    assert two.a.requests("CancelJob") == []
    mixed = two.dlq("why", "a:17", "b:17")
    assert mixed.code == 2
    assert "of several clusters" in mixed.err
    assert two.dlq("status", "c:17").code == 3


def test_the_list_says_who_one_is_at_each_cluster(two: Two) -> None:
    rows = json.loads(two.dlq("clusters", "--json").out)["clusters"]
    assert [(row["cluster"], row["user"], row["state"]) for row in rows] == [
        ("a", "alice", "ready"),
        ("b", "alice", "ready"),
    ]
    assert two.dlq("clusters").out.splitlines()[0].split()[:2] == ["CLUSTER", "USER"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[clusters.Any]\nhome = '.'", "is no name"),
        ("[clusters.any]\nhome = '.'", "is no name"),
        ("[clusters.a]", "must name an identity directory"),
        ("[clusters.a]\nhome = '.'\nprize = 3", "is not known"),
        ("[clusters.a]\nhome = '.'\nprice_per_gpu_hour = -1", "a number from 0 up"),
        ("color = 'never'", "want tables named"),
        ("[clusters", "not TOML"),
    ],
)
def test_a_wrong_list_is_refused_with_its_place(two: Two, text: str, told: str) -> None:
    (two.home / "clusters.toml").write_text(text)
    said = two.to()
    assert said.code == 2
    assert told in said.err


def test_without_a_list_a_colon_is_a_letter(two: Two) -> None:
    (two.home / "clusters.toml").unlink()
    two.a.jobs["17"] = a_job(17, "running", name="b:17")
    assert "b:17" in two.dlq("status", "b:17").out
    said = two.to()
    assert said.code == 2
    assert "there is no list of clusters" in said.err


def waiting_at_a(two: Two, **more: object) -> None:
    """Job 5 waits at a, as its user submitted it."""
    two.a.jobs["5"] = a_job(5, "queued", name="slow", version=4, attempt_count=0, **more)
    two.a.specs["5"] = job_pb2.JobSpec(name="slow", command=["true"])


def test_a_waiting_job_moves_where_it_would_end_earlier(two: Two) -> None:
    waiting_at_a(two)
    said = two.dlq("move", "a:5", "--within", "5s")
    assert (said.code, said.out) == (0, "job a:5 is b:17 now\n")
    (order,) = two.a.requests("CancelJob")
    assert (order.job_id, order.expected_version) == ("5", 4)
    assert two.a.jobs["5"].state == job_pb2.JOB_STATE_CANCELLED
    assert two.b.specs["17"].name == "slow"
    (hand,) = json.loads(two.dlq("handovers", "--json").out)["handovers"]
    assert hand["story"] == ["a has let it go", "b has it as job 17"]


def test_a_job_stays_where_no_offer_is_better_unless_it_is_moved_anyway(two: Two) -> None:
    waiting_at_a(two)
    two.a.estimate = an_estimate(60)
    said = two.dlq("move", "a:5")
    assert (said.code, said.out, two.jobs) == (0, "", [])
    assert "job a:5 stays: no other cluster has a better offer" in said.err
    assert two.dlq("move", "a:5", "--test-only", "--anyway").out == ""
    assert two.a.requests("CancelJob") == []
    assert two.dlq("move", "a:5", "--anyway", "--parsable").out == "b:17\n"


def test_a_job_that_no_cluster_takes_just_then_stays_open_and_comes_back(two: Two) -> None:
    waiting_at_a(two)
    for site in (two.a, two.b):
        site.refuse("SubmitJob", grpc.StatusCode.RESOURCE_EXHAUSTED, "TRY_AGAIN", what="too many")
    said = two.dlq("move", "a:5", patience_s=0.0)
    assert said.code == 69
    assert "no cluster has the job yet, and a is asked for it next (a refused it: " in said.err
    shown = two.dlq("handovers").out
    assert "open" in shown
    assert "a refused it: too many" in shown
    two.a.refuse_no_more("SubmitJob")
    assert "a:17" in two.dlq("handovers", "--settle").out
    assert two.jobs == ["a:17"]


def test_a_job_that_starts_meanwhile_stays(two: Two) -> None:
    waiting_at_a(two)
    two.a.refuse("CancelJob", grpc.StatusCode.ABORTED, "CONFLICT", what="job 5 has changed")
    said = two.dlq("move", "a:5")
    assert (said.code, said.out, two.jobs) == (75, "", [])
    assert "job a:5 has not moved: a keeps it: job 5 has changed" in said.err


@pytest.mark.parametrize(
    ("fields", "words", "told"),
    [
        ({"state": "completed"}, ("a:5",), "only a job that waits, runs or is paused"),
        ({"state": "held"}, ("a:5",), "only a job that waits, runs or is paused"),
        ({"state": "suspended", "attempt_count": 1}, ("a:5",), "first dlq resume 5"),
        ({"state": "running", "attempt_count": 1}, ("a:5",), "where its cluster keeps them"),
        ({"attempt_count": 2, "checkpoint": SAVED}, ("a:5",), "has run already"),
        ({"user": "bob"}, ("a:5",), "belongs to"),
        ({}, ("5",), "name the job with its cluster"),
        ({}, ("a:5", "--to", "a"), "names no other cluster"),
    ],
)
def test_what_cannot_move_stays_untouched(
    two: Two, fields: dict[str, object], words: tuple[str, ...], told: str
) -> None:
    state = str(fields.pop("state", "queued"))
    two.a.jobs["5"] = a_job(5, state, **{"attempt_count": 0, **fields})
    said = two.dlq("move", *words)
    assert said.code != 0
    assert told in said.err
    assert two.a.requests("CancelJob") == []


def test_a_job_for_which_others_wait_and_one_that_stages_stay(two: Two) -> None:
    waiting_at_a(two)
    two.a.jobs["6"] = a_job(6, "pending", dependency="afterok:5")
    assert "job 6 waits for job 5, which stays" in two.dlq("move", "a:5").err
    two.a.jobs["6"] = a_job(6, "pending", dependency="afterwards:5=now")  # of a newer master
    assert "job 6 waits for job 5, which stays" in two.dlq("move", "a:5").err
    two.a.jobs["6"] = a_job(6, "pending", dependency="afterok:55")
    two.a.specs["5"].script = Path(stage_program.__file__).read_text()
    assert "stages data at its cluster" in two.dlq("move", "a:5").err
    assert two.a.requests("CancelJob") == []


@pytest.mark.parametrize("dependency", ["after:12+5", "afterok:12_5?singleton"])
def test_a_number_that_is_no_job_keeps_no_job(two: Two, dependency: str) -> None:
    """Minutes, and the index of a task."""
    waiting_at_a(two)
    two.a.jobs["6"] = a_job(6, "pending", dependency=dependency)
    assert two.dlq("move", "a:5", "--within", "5s").out == "job a:5 is b:17 now\n"


def test_a_deadline_that_has_passed_is_left_out_of_a_move(two: Two) -> None:
    """Every cluster would refuse it, and so in the end would its own one."""
    waiting_at_a(two)
    now_s = SteadyClock().now_s()
    for after_s, reward in ((-60, 100), (9_000, 40)):
        step = two.a.specs["5"].deadlines.add(reward=reward)
        step.due_time.CopyFrom(to_timestamp(now_s + after_s))
        two.a.jobs["5"].promise.deadlines.add().CopyFrom(step)
    two.a.specs["5"].on_miss = "cancel"
    two.a.specs["5"].lateness.due_time.CopyFrom(to_timestamp(now_s - 60))
    assert two.dlq("move", "a:5").out == "job a:5 is b:17 now\n"
    (asked,) = two.b.requests("EstimateJob")
    moved = two.b.specs["17"]
    assert asked.spec.deadlines == moved.deadlines == two.a.specs["5"].deadlines[1:]
    assert moved.on_miss == "cancel"
    assert from_timestamp(moved.lateness.due_time) > now_s
    waiting_at_a(two)
    two.a.specs["5"].deadlines.add().due_time.CopyFrom(to_timestamp(now_s - 60))
    two.a.specs["5"].on_miss = "continue"
    assert two.dlq("move", "a:5").out == "job a:5 is b:18 now\n"
    assert (len(two.b.specs["18"].deadlines), two.b.specs["18"].on_miss) == (0, "")


def running_at_a(two: Two, directory: str = "/shared/run") -> None:
    """Job 5 runs at a, and has saved."""
    two.a.jobs["5"] = a_job(5, "running", name="slow", version=4, checkpoint=SAVED)
    two.a.specs["5"] = job_pb2.JobSpec(name="slow", command=["true"])
    two.a.specs["5"].checkpoint.directory = directory


def share(two: Two, directory: str = "/shared") -> None:
    path = two.home / "clusters.toml"
    tables = path.read_text().replace("]\n", f"]\nstorage = ['{directory}']\n")
    path.write_text(tables)


def test_a_running_job_moves_with_its_checkpoint(two: Two) -> None:
    share(two)
    running_at_a(two)
    two.a.leaves_after_looks = 2
    said = two.dlq("move", "a:5", "--anyway")
    assert (said.code, said.out) == (0, "job a:5 is b:17 now\n")
    assert two.a.jobs["5"].state == job_pb2.JOB_STATE_CANCELLED
    moved = two.b.specs["17"]
    assert moved.checkpoint.directory == "/shared/run/a-5"
    assert moved.checkpoint.resume_from == "/shared/run/5/1/step-3"


def test_a_running_job_stays_where_no_other_cluster_reaches_its_checkpoint(two: Two) -> None:
    running_at_a(two)
    said = two.dlq("move", "a:5", "--anyway")
    assert said.code != 0
    assert "no other cluster of --to reaches /shared/run" in said.err
    share(two, "/other")
    assert two.dlq("move", "a:5", "--anyway").code != 0
    assert two.a.requests("PauseJob") == []


def test_a_job_that_has_never_saved_begins_anew_elsewhere(two: Two) -> None:
    waiting_at_a(two)
    two.a.jobs["5"].attempt_count = 2
    assert two.dlq("move", "a:5").out == "job a:5 is b:17 now\n"
    assert two.b.specs["17"] == two.a.specs["5"]


def test_a_job_that_has_moved_moves_on_only_where_its_checkpoint_is_reached(two: Two) -> None:
    """It has saved nothing here, and goes on from the checkpoint of the cluster before."""
    waiting_at_a(two)
    two.a.specs["5"].checkpoint.directory = "/shared/run/b-3"
    two.a.specs["5"].checkpoint.resume_from = "/shared/run/3/1/step-7"
    said = two.dlq("move", "a:5")
    assert said.code != 0
    assert "no other cluster of --to reaches /shared/run/b-3" in said.err
    assert two.a.requests("CancelJob") == []
    share(two)
    assert two.dlq("move", "a:5").out == "job a:5 is b:17 now\n"
    assert two.b.specs["17"] == two.a.specs["5"]


def test_declared_data_is_found_anew_at_the_next_cluster(two: Two) -> None:
    path = two.home / "clusters.toml"
    data = f'[data.imagenet]\ndigest = "sha256:{"ab" * 32}"\nbytes = 1\nsource = "/x"\n'
    places = '[data.imagenet.at]\na = "/data/imagenet"\nb = "/mnt/imagenet"\n'
    path.write_text(path.read_text() + data + places)
    waiting_at_a(two)
    two.a.specs["5"].environment["DATA_IMAGENET"] = "/data/imagenet"
    said = two.dlq("move", "a:5")
    assert said.out == "job a:5 is b:17 now\n", said.err
    assert two.b.specs["17"].environment["DATA_IMAGENET"] == "/mnt/imagenet"


def test_a_cluster_of_a_former_release_gets_no_job_with_a_checkpoint(two: Two) -> None:
    share(two)
    running_at_a(two)
    two.b.estimate.knows_resume_from = False
    said = two.dlq("move", "a:5", "--anyway")
    assert (said.code, two.jobs) == (0, [])
    assert "would begin without the checkpoint" in said.err


def test_a_round_moves_the_jobs_that_gain_and_lets_them_rest(two: Two) -> None:
    waiting_at_a(two)
    two.a.jobs["6"] = a_job(6, "queued", name="wide", user="alice", attempt_count=0)
    two.a.specs["6"] = job_pb2.JobSpec(name="wide", command=["true"])
    two.a.estimate, two.b.estimate = an_estimate(36_000), an_estimate(3_600)
    said = two.dlq("move", "--all")
    assert (said.code, said.out) == (0, "job a:5 is b:17 now\n")  # one for each cluster
    assert two.dlq("move", "--all").out == "job a:6 is b:18 now\n"
    two.a.estimate, two.b.estimate = an_estimate(60), an_estimate(36_000)
    assert two.dlq("move", "--all").out == ""  # they rest


def test_a_round_looks_moves_up_once_and_only_for_jobs_that_may_move(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting_at_a(two)
    two.a.jobs["6"] = a_job(6, "queued", name="slow", attempt_count=0)
    two.a.specs["6"] = two.a.specs["5"]
    two.a.jobs["7"] = a_job(7, "held", name="held")
    two.a.estimate = two.b.estimate
    calls: list[str] = []

    def noted(real: Any, *given: Any) -> Any:
        calls.append(" ".join((real.__name__, *given[1:])))
        return real(*given)

    for name in ("moves_by_name", "rests_until_s"):
        monkeypatch.setattr(moving_on, name, partial(noted, getattr(moving_on, name)))
    assert two.dlq("move", "--all").code == 0
    assert calls == ["moves_by_name", "rests_until_s a:5", "rests_until_s a:6"]
    calls.clear()
    two.dlq("move", "--leave", "a")
    assert "rests_until_s a:5" not in calls


def test_a_round_leaves_a_job_that_gains_little(two: Two) -> None:
    waiting_at_a(two)
    two.a.estimate, two.b.estimate = an_estimate(7_200), an_estimate(6_900)
    assert two.dlq("move", "--all").out == ""
    assert two.dlq("move", "a:5", "--test-only").code == 0


def test_leaving_a_cluster_takes_all_jobs_along_and_names_those_that_cannot(two: Two) -> None:
    waiting_at_a(two)
    two.a.estimate = an_estimate(60)
    two.a.jobs["6"] = a_job(6, "running", name="stuck")
    two.a.specs["6"] = job_pb2.JobSpec(name="stuck", command=["true"])
    said = two.dlq("move", "--leave", "a")
    assert said.out == "job a:5 is b:17 now\n"
    assert "a:6: job 6 has run already" in said.err


def test_leaving_a_cluster_asks_it_for_no_offer(two: Two) -> None:
    """Its forecast may take long when nothing starts there, and would keep no job."""
    share(two)
    waiting_at_a(two)
    for number in (6, 7):
        two.a.jobs[f"{number}"] = a_job(number, "running", name="saves", checkpoint=SAVED)
        two.a.specs[f"{number}"] = job_pb2.JobSpec(name="saves", command=["true"])
        two.a.specs[f"{number}"].checkpoint.directory = "/shared/run"
    two.a.jobs["8"] = a_job(8, "queued", name="first", user="alice", attempt_count=0)
    two.a.jobs["9"] = a_job(9, "pending", name="second", user="alice", dependency="afterok:8")
    two.a.specs["9"] = job_pb2.JobSpec(dependency=job_pb2.DependencySpec())
    two.a.leaves_after_looks = 1
    said = two.dlq("move", "--leave", "a", "--within", "5s")
    assert said.out.split("\n")[:-1] == [
        f"job a:{job} is b:{number} now" for job, number in ((5, 17), (6, 18), (7, 19))
    ]
    assert "a:8: job 9 waits for job 8, which stays" in said.err
    # Only whether it takes jobs back with their checkpoints: once, without a wait for its twin.
    (asked,) = two.a.requests("EstimateJob")
    assert (asked.job_id, asked.wait_duration.ToMilliseconds()) == ("6", 100)
    assert len(two.b.requests("EstimateJob")) == 3
    (listed,) = [one for one in two.a.requests("ListJobs") if not one.job_ids]
    assert set(listed.states) == {"queued", "pending", "assigned", "running", "held"}
    (hand, *_) = HandOverFiles(two.home / "handovers").all()
    assert [answer.cluster for answer in hand.answers] == ["b"]


def test_a_job_with_a_checkpoint_stays_where_its_cluster_could_not_take_it_back(two: Two) -> None:
    share(two)
    running_at_a(two)
    two.a.estimate.knows_resume_from = False
    said = two.dlq("move", "--leave", "a")
    assert (said.out, two.jobs) == ("", [])
    assert "job a:5 stays, as a could not take it back: it is of a former release" in said.err


def test_one_lost_line_keeps_one_job_and_a_former_release_all_of_them(two: Two) -> None:
    share(two)
    running_at_a(two)
    for number in (6, 7):
        two.a.jobs[f"{number}"] = a_job(number, "running", name="saves", checkpoint=SAVED)
        two.a.specs[f"{number}"] = two.a.specs["5"]
    two.a.leaves_after_looks = 1
    two.a.refuse_once("EstimateJob", grpc.StatusCode.UNAVAILABLE, "", what="gone")
    said = two.dlq("move", "--leave", "a")
    assert said.out == "job a:6 is b:17 now\njob a:7 is b:18 now\n"
    assert "job a:5 stays, as a could not take it back: " in said.err
    two.a.jobs["6"] = a_job(6, "running", name="saves", checkpoint=SAVED)
    two.a.estimate.knows_resume_from = False
    before = len(two.a.requests("EstimateJob"))
    said = two.dlq("move", "--leave", "a")
    assert said.out == ""
    assert "job a:6 stays, as a could not take it back: it is of a former release" in said.err
    assert len(two.a.requests("EstimateJob")) == before + 1


def test_a_job_that_no_other_cluster_offers_for_stays_and_all_reasons_are_told(two: Two) -> None:
    waiting_at_a(two)
    two.b.refuse(
        "EstimateJob", grpc.StatusCode.FAILED_PRECONDITION, "UNSATISFIABLE", what="too wide"
    )
    said = two.dlq("move", "--leave", "a")
    assert (said.out, two.jobs) == ("", [])
    assert "a:5: it stays, as no other cluster makes an offer: b: too wide" in said.err


def test_a_round_lists_the_jobs_of_a_cluster_once(two: Two) -> None:
    for number in range(5, 9):
        two.a.jobs[f"{number}"] = a_job(number, "queued", name="slow", attempt_count=0)
        two.a.specs[f"{number}"] = job_pb2.JobSpec(name="slow", command=["true"])
    assert two.dlq("move", "--all").code == 0
    for site in (two.a, two.b):
        assert len([one for one in site.requests("ListJobs") if not one.job_ids]) == 1
    assert len(two.a.requests("EstimateJob")) == len(two.b.requests("EstimateJob")) == 4


def test_a_round_settles_what_is_open(two: Two) -> None:
    two.b.lose_replies("SubmitJob", 1_000)
    two.to(patience_s=0.0)
    two.b.lose_replies("SubmitJob", 0)
    assert two.dlq("move", "--all").code == 0
    (hand,) = HandOverFiles(two.home / "handovers").all()
    assert hand.global_name == "b:17"


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("a:5", "--all"),
        ("--all", "--leave", "a"),
        ("--all", "--json"),
        ("a:5", "--every", "5m"),
        ("--all", "--every", "5s"),
        ("--leave", "c"),
    ],
)
def test_a_round_that_cannot_be_meant_is_refused(two: Two, words: tuple[str, ...]) -> None:
    assert two.dlq("move", *words).code == 2

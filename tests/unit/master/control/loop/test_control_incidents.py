"""What the master has failed on is put aside, refused for a while, and known after a restart."""

import json
from pathlib import Path

import pytest

from dlq_common.errors import DlqError, InternalError, Unavailable
from dlq_master.control.loop.failpoints import Failpoints
from dlq_master.control.loop.incidents import (
    FIRST_PAUSE_S,
    KINDS_BORNE,
    MOST_KEPT,
    HandlerFailed,
    Incidents,
)
from dlq_master.control.stimuli import (
    Caller,
    CancelJob,
    HoldJob,
    JobEdit,
    PauseJob,
    ReleaseJob,
    Tick,
    UseToken,
)
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.jobs.job import Job
from support.master_harness import Master

NOW_S = 1_800_000_000.0
ALICE, BOB = Caller("alice", "user"), Caller("bob", "user")
FAULT = ValueError("a bug")


def hold(caller: Caller = ALICE, request_id: str = "r1") -> HoldJob:
    return HoldJob(caller=caller, request_id=request_id, job_id=JobId(7), expected_version=0)


@pytest.fixture
def incidents(tmp_path: Path) -> Incidents:
    return Incidents(tmp_path / "incidents")


def test_a_request_is_refused_for_good_and_others_of_its_sender_after_a_second_failure(
    incidents: Incidents, tmp_path: Path
) -> None:
    incidents.put_aside(hold(), FAULT, NOW_S)
    assert isinstance(incidents.refusal(hold(), NOW_S + 1e6), InternalError)
    assert incidents.refusal(hold(request_id="r2"), NOW_S) is None
    incidents.put_aside(hold(request_id="r2"), FAULT, NOW_S)
    again = Incidents(tmp_path / "incidents")  # of the next master
    for known in (incidents, again):
        assert isinstance(known.refusal(hold(request_id="r3"), NOW_S), InternalError)
        assert known.refusal(hold(request_id="r3"), NOW_S + 2 * FIRST_PAUSE_S) is None
        assert known.refusal(hold(BOB), NOW_S) is None


def test_what_has_no_key_of_its_own_is_left_out_for_a_time_that_doubles(
    incidents: Incidents,
) -> None:
    tick = Tick("leases")
    for failures, pause_s in ((1, FIRST_PAUSE_S), (2, 2 * FIRST_PAUSE_S), (3, 4 * FIRST_PAUSE_S)):
        assert incidents.put_aside(tick, FAULT, NOW_S).failures == failures
        assert incidents.refusal(tick, NOW_S + pause_s - 1.0) is not None
        assert incidents.refusal(tick, NOW_S + pause_s) is None
    assert incidents.refusal(Tick("compact"), NOW_S) is None


def test_a_sender_that_fails_the_master_in_many_ways_is_shut_out_and_nobody_else(
    incidents: Incidents,
) -> None:
    """Each failure is a short outage for all: without a limit one user could end the process."""
    for kind in (HoldJob, PauseJob, ReleaseJob):
        assert incidents.refusal(_other(CancelJob), NOW_S) is None
        incidents.put_aside(_other(kind), FAULT, NOW_S)
    refused = incidents.refusal(_other(CancelJob), NOW_S)
    assert isinstance(refused, Unavailable)
    assert f"{KINDS_BORNE} kinds of requests of user:alice" in refused.what
    assert incidents.refusal(_other(CancelJob, BOB), NOW_S) is None
    assert incidents.refusal(_other(CancelJob), NOW_S + FIRST_PAUSE_S) is None


def _other(kind: type[JobEdit], caller: Caller = ALICE) -> JobEdit:
    return kind(caller=caller, request_id=kind.__name__, job_id=JobId(7))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("failpoint", "least", "most"), [("stumble", 2, 2), ("stagger", 4, 30)])
def test_a_handler_that_fails_at_random_changes_nothing_and_serves_the_others(
    seed: int, failpoint: str, least: int, most: int
) -> None:
    """Before its handler or after it: what the draft holds then is gone. Of the one, all of its
    kind are refused for a while after two failures; of the other nobody is put aside.
    """
    mallory = Caller("mallory", "user")
    master = Master(failpoints=Failpoints(f"{failpoint}:3@user:mallory"))
    master.loop._failpoints._chance.seed(seed)
    try:
        told, failures, taken = master.submit(), 0, 1
        for _ in range(30):
            try:
                (outcome,) = master.turn(master.submission(caller=mallory))
                taken += not isinstance(outcome, DlqError)
            except HandlerFailed:
                failures += 1
                incidents, failpoints = master.loop._incidents, master.loop._failpoints
                master.start()  # as serving.py does
                master.loop._incidents, master.loop._failpoints = incidents, failpoints
            assert master.job(told.job_id) == told
            assert len(master.state.cluster.jobs) == taken
        assert least <= failures <= most
        assert isinstance(master.submit(name="alice is served"), Job)
    finally:
        master.close()


def test_no_secret_is_written_and_nobody_else_may_read(
    incidents: Incidents, tmp_path: Path
) -> None:
    token = UseToken(
        token_id="t1", secret_hash="5ec4e7", key_fingerprint="f", wished_node_id=NodeId("gpu01")
    )
    incidents.put_aside(token, FAULT, NOW_S)
    (path,) = (tmp_path / "incidents").iterdir()
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    told = json.loads(path.read_text())
    assert told["stimulus"] == {"token_id": "t1"}
    assert "5ec4e7" not in path.read_text()


def test_only_the_newest_are_kept_and_a_damaged_file_is_passed_over(
    incidents: Incidents, tmp_path: Path
) -> None:
    for number in range(MOST_KEPT + 5):
        incidents.put_aside(Tick("leases"), FAULT, NOW_S + number)
    assert len(list((tmp_path / "incidents").iterdir())) == MOST_KEPT
    (tmp_path / "incidents" / "0.json").write_text("{")
    assert Incidents(tmp_path / "incidents").refusal(Tick("leases"), NOW_S) is not None


def test_a_loop_uses_the_empty_incidents_that_it_is_given() -> None:
    """An `or` took them for none, and wrote into the state directory instead."""
    master = Master()
    assert len(master.loop._incidents) == 0
    assert master.loop._incidents._directory == master._incidents
    master.close()

"""Trials by real daemons: a real script on one node and on two, while agent and master are
killed.
"""

import json
import sys
from collections.abc import Iterator
from math import log2
from typing import Any

import pytest

from dlq.v1 import job_pb2
from dlq_client.jobs import Jobs
from support.harness import HERE, Daemons
from support.json_lines import json_lines
from support.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long(
        "unit/master/control/trials/test_control_trials.py",
    ),
]

STEP_S, TOTAL = 0.05, 120
SLOWEST = 5.0  # a step that sleeps may wake this much later where many others want the processor


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    with Daemons(tmp_path_factory.mktemp("trials")).up() as running:
        # Who says no step within twice that is not tried any further: a busy machine needs seconds
        # to start a job.
        running.said("admin", "policy", "set", "chronus", "--set", "profile_s=4", "-y")
        yield running


def submit(daemons: Daemons, jobs: Jobs, gpus: int, total: int = TOTAL) -> str:
    spec = job_pb2.JobSpec(
        name="shrinking",
        command=[
            sys.executable, str(HERE / "shrinking_job.py"), str(daemons.root / "runs"),
            str(STEP_S), str(total),
        ],
        working_directory=str(daemons.root),
    )  # fmt: skip
    spec.checkpoint.directory = str(daemons.root / "checkpoints")
    spec.resources.gpu_count = gpus
    return jobs.submit(spec).job.job_id


def runs(daemons: Daemons) -> list[dict[str, Any]]:
    return json_lines(daemons.root / "runs")


def shown(daemons: Daemons, job_id: str) -> dict[str, Any]:
    (job,) = json.loads(daemons.said("show", job_id, "--json"))["jobs"]
    return dict(job)


def test_a_wide_job_is_tried_on_one_node_and_on_two_through_kills_and_then_runs_once(
    daemons: Daemons,
) -> None:
    with daemons.connect() as line:
        jobs = Jobs(line)
        job_id = submit(daemons, jobs, 24)
        wait_until(lambda: len(runs(daemons)) == 1, what="the first trial runs", timeout_s=60.0)
        (node,) = shown(daemons, job_id)["nodes"]
        daemons.kill(node)
        daemons.start(node)
        wait_until(
            lambda: any(run["attempt"] == 2 for run in runs(daemons)),
            what="the second trial runs",
            timeout_s=60.0,
        )
        daemons.kill("master")
        daemons.start("master")
        daemons.wait_for("master")
        wait_until(
            lambda: shown(daemons, job_id)["state"] == "completed",
            what="the job is done",
            timeout_s=60.0,
        )
        last = shown(daemons, job_id)
    begun = [run for run in runs(daemons) if "done" not in run]
    assert [(run["attempt"], run["nodes"], run["trial"]) for run in begun if run["rank"] == 0] == [
        (1, 1, True), (2, 2, True), (3, 3, False),
    ]  # fmt: skip
    assert all(run["pet"] == str(run["nodes"]) for run in begun)
    # The others may begin when the first has saved already.
    assert all(run["resumed_at"] == 0 for run in begun if run["rank"] == 0), (
        "no trial's work counts"
    )
    assert len({run["directory"] for run in begun}) == 3
    # On a slow machine a trial may come to the end of its steps before anybody ends it: the job
    # goes on all the same.
    done = [run["attempt"] for run in runs(daemons) if "done" in run]
    assert done.count(3) == 3
    assert done[-3:] == [3, 3, 3]
    assert [attempt["lease_kind"] for attempt in last["attempts"]][:2] == ["profile", "profile"]
    (estimated,) = [
        event
        for event in json.loads(daemons.said("events", job_id, "--json"))["events"]
        if event["kind"] == "job_estimated"
    ]
    found_s = float(estimated["data"]["estimate_s"])
    true_s = TOTAL * STEP_S * (1.0 + log2(3) / 10.0)
    assert 0.5 * true_s < found_s < SLOWEST * true_s, "start-up included, on a machine that is busy"


def test_a_job_of_one_node_is_measured_in_its_first_run_and_shows_it(daemons: Daemons) -> None:
    with daemons.connect() as line:
        job_id = submit(daemons, Jobs(line), 8, total=10_000)
        wait_until(
            lambda: shown(daemons, job_id)["estimate"]["source"] == "profiled",
            what="it is measured",
            timeout_s=60.0,
        )
        estimate = shown(daemons, job_id)["estimate"]
        # Steps are dated when they are heard of, which on a busy machine is much in a trial of four
        # seconds.
        assert STEP_S / SLOWEST < estimate["step_s"] < SLOWEST * STEP_S
        assert estimate["run_s"] == pytest.approx(10_000 * estimate["step_s"], rel=0.1)
        assert estimate["confidence"] in ("high", "medium", "low")
        assert "by its own steps" in daemons.said("show", job_id)
        assert [attempt["attempt"] for attempt in shown(daemons, job_id)["attempts"]] == [1]
        daemons.said("cancel", job_id)

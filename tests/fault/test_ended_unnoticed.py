"""Jobs that end by themselves after the master has decided to stop them, and before anybody has
told them: real daemons, real shims, and an agent that is away meanwhile. Their end is their own."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from dlq.v1 import job_pb2, resource_pb2
from dlq_cli.words import has_ended, shown_state
from dlq_client.jobs import Jobs
from support.harness import Daemons
from support.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long(
        "unit/master/control/attempts/test_control_own_ends.py",
        "unit/master/model/attempts/test_own_ends.py",
    ),
]

# How each job is stopped, with what it exits, how many nodes it has: and what is shown of it in the
# end.
CASES = [
    ("pause", 0, 1, "completed"),
    ("pause", 3, 1, "failed"),
    ("pause", 0, 2, "completed"),
    ("requeue", 0, 1, "completed"),
    ("requeue", 3, 1, "failed"),
    ("cancel", 0, 1, "cancelled"),
    ("cancel", 3, 1, "cancelled"),
    ("drain", 0, 1, "completed"),
]


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    with Daemons(tmp_path_factory.mktemp("cluster"), ("n1", "n2")).up() as made:
        yield made


def a_spec(name: str, go: Path, code: int, nodes: int) -> job_pb2.JobSpec:
    script = f"until [ -e {go} ]; do sleep 0.1; done; exit {code}"
    return job_pb2.JobSpec(
        name=name,
        command=["/bin/sh", "-c", script],
        resources=resource_pb2.ResourceRequest(gpu_count=nodes, node_count=nodes),
        working_directory="/tmp",
    )


def is_running(jobs: Jobs, job_id: str) -> bool:
    return shown_state(jobs.get(job_id).job) == "running"


def is_judged(jobs: Jobs, job_id: str) -> bool:
    return jobs.get(job_id).attempts[0].HasField("end_time")


def stop(daemons: Daemons, jobs: Jobs, how: str, job_id: str) -> None:
    if how == "drain":
        daemons.said("admin", "node", "drain", "n1", "n2", "--reason", "a test", "-y")
    elif how == "requeue":
        jobs.requeue_each(job_id, accept_loss=True)
    elif how == "pause":
        jobs.pause(job_id, accept_loss=True)
    else:
        jobs.cancel(job_id)


@pytest.mark.parametrize("master_dies", [False, True])
def test_who_ends_before_any_notice_of_a_stop_keeps_its_end(
    daemons: Daemons, master_dies: bool
) -> None:
    go = daemons.root / f"go-{master_dies}"
    with daemons.connect() as line:
        jobs = Jobs(line)
        specs = [a_spec(how, go, code, nodes) for how, code, nodes, _ in CASES]
        ids = [jobs.submit(spec).job.job_id for spec in specs]
        for job_id in ids:
            wait_until(partial(is_running, jobs, job_id), what=f"{job_id} runs")
        for name in ("n1", "n2"):
            daemons.kill(name)
        for (how, *_), job_id in zip(CASES, ids, strict=True):
            stop(daemons, jobs, how, job_id)
        if master_dies:
            daemons.kill("master")
        go.touch()
        ranks = [
            (job_id, rank)
            for job_id, case in zip(ids, CASES, strict=True)
            for rank in range(case[2])
        ]
        ends = [f"n*/attempts/{job_id}.1.{rank}/exit.json" for job_id, rank in ranks]
        wait_until(lambda: all(any(daemons.root.glob(end)) for end in ends), what="all have ended")
        for name in ("master", "n1", "n2")[0 if master_dies else 1 :]:
            daemons.start(name)
            daemons.wait_for(name)
        for job_id in ids:
            wait_until(partial(is_judged, jobs, job_id), what=f"{job_id} is judged")
        daemons.said("admin", "node", "undrain", "n1", "n2")
        found = [jobs.get(job_id) for job_id in ids]
        assert [
            (case[0], shown_state(it.job), len(it.attempts))
            for case, it in zip(CASES, found, strict=True)
        ] == [(how, word, 1) for how, _, _, word in CASES]
        assert all(has_ended(it.job) for it in found)
        assert "it ended before it was told to stop (pause)" in daemons.said("events", ids[0])

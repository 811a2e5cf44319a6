"""`scontrol update` and `dlq update` of the spec of a job that waits: all of it or nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dlq.v1 import job_pb2
from dlq.v1 import job_service_pb2 as wire
from dlq_client.jobs import Jobs
from dlq_common.errors import IllegalTransition, InvalidRequest
from support.harness import Daemons
from support.waiting import wait_until

pytestmark = pytest.mark.integration
BOTH = "n[1-2]"


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    with Daemons(tmp_path_factory.mktemp("specs"), ("n1", "n2")).up() as running:
        yield running


def scontrol(daemons: Daemons, job_id: str, *words: str) -> tuple[int, str]:
    said = daemons.dlq("slurm", "scontrol", "update", f"JobId={job_id}", *words)
    return said.code, said.err


def submitted(daemons: Daemons, *words: str) -> str:
    wrap = ("--wrap", "pwd", "--hold", "--parsable", "--gres=gpu:1")
    return daemons.said("slurm", "sbatch", *words, *wrap).strip()


def shown(daemons: Daemons, job_id: str) -> str:
    return daemons.said("slurm", "scontrol", "show", "job", job_id)


def test_a_job_starts_as_it_was_changed_also_after_a_restart(daemons: Daemons) -> None:
    folder = daemons.root / "elsewhere"
    folder.mkdir()
    job_id = submitted(daemons, "-o", str(daemons.root / "old"))
    words = (
        f"WorkDir={folder}", "StdOut=new-%j", "ExcNodeList=n1", "Requeue=0", "Comment=hello",
    )  # fmt: skip
    assert scontrol(daemons, job_id, *words) == (0, "")
    daemons.kill("master")
    daemons.start("master")
    daemons.wait_for("master")
    told = shown(daemons, job_id)
    for part in (f"WorkDir={folder}", "ExcNodeList=n1", "Requeue=0", "Comment=hello"):
        assert part in told
    daemons.said("slurm", "scontrol", "release", job_id)
    path = folder / f"new-{job_id}"
    wait_until(lambda: path.exists() and path.read_text(), what="its output", timeout_s=60.0)
    assert path.read_text() == f"{folder}\n"
    with daemons.connect() as line:
        attempt = Jobs(line).get(job_id).attempts[0]
    assert [slot.node_id for slot in attempt.lease.allocation.slots] == ["n2"]


def test_nothing_is_changed_when_one_is_refused(daemons: Daemons) -> None:
    job_id = submitted(daemons)
    before = shown(daemons, job_id)
    unknown = "Update of this parameter is not supported: NumTasks=2\n"
    code, err = scontrol(daemons, job_id, "JobName=other", "NumTasks=2")
    assert (code, err.startswith(unknown), err.endswith("Request aborted\n")) == (1, True, True)
    code, err = scontrol(daemons, job_id, "JobName=other", f"ExcNodeList={BOTH}")
    assert (code, err) == (
        1, f"Requested node configuration is not available for job {job_id}\n",
    )  # fmt: skip
    code, err = scontrol(daemons, job_id, "JobName=other", "WorkDir=relative")
    assert code == 1
    assert shown(daemons, job_id) == before


def test_priority_0_is_a_hold(daemons: Daemons) -> None:
    whole = ("--wrap", "sleep 100", "--gres=gpu:8", "-N2", "--parsable")
    before = daemons.said("slurm", "sbatch", *whole).strip()
    job_id = daemons.said("slurm", "sbatch", "--wrap", "true", "--gres=gpu:8", "--parsable").strip()
    assert scontrol(daemons, job_id, "Priority=0", "Nice=5") == (0, "")
    assert "Reason=JobHeldUser" in shown(daemons, job_id)
    daemons.said("slurm", "scancel", "-s", "KILL", before)


def test_a_task_of_an_array_gets_a_spec_of_its_own(daemons: Daemons) -> None:
    array = submitted(daemons, "--array=0-2")
    assert scontrol(daemons, f"{array}_0", "Comment=first", "WorkDir=/tmp") == (0, "")
    assert "Comment=first" in shown(daemons, f"{array}_0")
    assert "Comment=first" not in shown(daemons, f"{array}_1")
    assert scontrol(daemons, array, "Comment=all") == (0, "")
    assert shown(daemons, f"{array}_2").count("Comment=all") == 1
    assert "WorkDir=/tmp" in shown(daemons, f"{array}_0")


def test_a_repeat_changes_nothing_and_a_running_job_keeps_its_spec(daemons: Daemons) -> None:
    with daemons.connect() as line:
        jobs = Jobs(line)
        spec = job_pb2.JobSpec(command=["/bin/sleep", "100"], hold=True, working_directory="/")
        spec.resources.gpu_count = 1
        job_id = jobs.submit(spec).job.job_id
        request = wire.UpdateJobRequest(request_id="once")
        request.spec_change.labels["a"] = "b"
        first = jobs.update_each(job_id, request)
        assert [(one.field, one.before, one.after) for one in first.changes] == [
            ("label a", "none", "b")
        ]
        again = jobs.update_each(job_id, request)
        assert again.jobs[0].version == first.jobs[0].version
        assert again.changes == first.changes
        bad = wire.UpdateJobRequest()
        bad.spec_change.working_directory = "relative"
        with pytest.raises(InvalidRequest, match="working"):
            jobs.update_each(job_id, bad)
        jobs.release(job_id)
        started = wire.UpdateJobRequest()
        started.spec_change.no_requeue = True
        wait_until(
            lambda: jobs.get(job_id).job.HasField("attempt_state"), what="it runs", timeout_s=60.0
        )
        with pytest.raises(IllegalTransition, match="its requeue cannot be changed any more"):
            jobs.update_each(job_id, started)
        jobs.cancel(job_id, kill=True)


@pytest.mark.parametrize(
    ("words", "before", "after"),
    [
        (("-N1", "--gpus-per-node=2"), (2, 1), (4, 2)),  # of each node
        (("-N1", "-G4"), (4, 1), (4, 2)),  # of the job
        (("-N1", "-n4", "--gpus-per-task=1"), (4, 1), (4, 2)),
    ],
)
def test_another_number_of_nodes(
    daemons: Daemons, words: tuple[str, ...], before: tuple[int, int], after: tuple[int, int]
) -> None:
    wrap = ("--wrap", "true", "--hold", "--parsable")
    job_id = daemons.said("slurm", "sbatch", *words, *wrap).strip()

    def asked() -> tuple[int, int]:
        with daemons.connect() as line:
            resources = Jobs(line).get(job_id).job.resources
        return resources.gpu_count, resources.node_count

    assert asked() == before
    assert scontrol(daemons, job_id, "NumNodes=2") == (0, "")
    assert asked() == after
    code, err = scontrol(daemons, job_id, "NumNodes=9")
    assert (code, asked()) == (1, after)
    assert err == f"Node count specification invalid for job {job_id}\n"
    code, err = scontrol(daemons, job_id, "NumNodes=0")
    assert (code, err) == (1, f"Node count specification invalid for job {job_id}\n")
    daemons.said("slurm", "scontrol", "release", job_id)
    assert daemons.dlq("wait", job_id).code == 0
    with daemons.connect() as line:
        attempt = Jobs(line).get(job_id).attempts[0]
    assert len(attempt.lease.allocation.slots) == 2


def test_the_nodes_of_some_jobs_stay(daemons: Daemons) -> None:
    elastic = daemons.said(
        "submit", "--hold", "--parsable", "-G2", "--elastic", "2:4", "--", "true"
    ).strip()
    said = daemons.dlq("update", elastic, "nodes=2")
    assert (said.code, "its nodes stay" in said.err) == (2, True)
    running = daemons.said("slurm", "sbatch", "--parsable", "-G1", "--wrap", "sleep 60").strip()
    wait_until(lambda: "JobState=RUNNING" in shown(daemons, running), what="it runs")
    assert scontrol(daemons, running, "NumNodes=2")[0] == 1
    daemons.said("cancel", running)

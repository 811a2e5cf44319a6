"""Jobs that have left memory and whose story was cut: real daemons, and every command that asks for
them.
"""

import json
from collections.abc import Iterator

import pytest

from dlq.v1 import job_pb2, resource_pb2
from dlq_cli.words import has_ended, shown_state
from dlq_client.jobs import Jobs
from dlq_common.errors import TryAgain
from support.harness import Daemons
from support.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long(
        "integration/test_rpc_past.py",
        "unit/master/control/jobs/test_control_rates.py",
    ),
]

# They follow [jobs] in master.toml.
SETTINGS = """
submit_burst = {burst}
submit_rate = 0.001

[retention]
ended_kept = "1s"
journal_kept = "2s"
compact_every = "1s"
"""
BURST = 10


def a_spec(*command: str) -> job_pb2.JobSpec:
    return job_pb2.JobSpec(
        name="story",
        command=command,
        resources=resource_pb2.ResourceRequest(gpu_count=2),
        working_directory="/tmp",
    )


def kinds(daemons: Daemons, job_id: str) -> list[str]:
    document = json.loads(daemons.said("events", job_id, "--json"))
    return [event["kind"] for event in document["events"]]


def check_old_job(daemons: Daemons, job_id: str) -> None:
    """Everything that can be asked of a job whose end is long past."""
    (job,) = json.loads(daemons.said("show", job_id, "--json"))["jobs"]
    assert (job["state"], job["exit_code"], job["spec"]["command"]) == (
        "failed", 3, ["/bin/sh", "-c", "echo once upon a time; exit 3"],
    )  # fmt: skip
    assert [attempt["state"] for attempt in job["attempts"]] == ["failed"]
    assert daemons.said("logs", job_id) == "once upon a time\n"
    assert "has ended: failed" in daemons.said("why", job_id)
    assert daemons.dlq("wait", job_id).code == 3
    assert daemons.dlq("wait", job_id, "--for", "running", "--timeout", "20s").code == 3
    listed = json.loads(daemons.said("status", "--since", "1d", "--json"))["jobs"]
    assert job_id in [each["job_id"] for each in listed]
    (past,) = json.loads(daemons.said("history", "-s", "failed", "--json"))["jobs"]
    assert (past["job_id"], past["exit_code"]) == (job_id, 3)
    assert past["gpu_hours"] >= 0.0
    said = daemons.dlq("events", job_id)
    assert (said.code, said.out) == (0, "")
    assert "no longer kept" in said.err
    daemons.said("cancel", job_id)


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    """A master and one node."""
    root, settings = tmp_path_factory.mktemp("cluster"), SETTINGS.format(burst=BURST)
    made = Daemons(root, agents=("n1",), settings=settings)
    with made.up():
        yield made


def flood(jobs: Jobs) -> None:
    """Submissions in a row, one more than a user may."""
    for number in range(1, BURST + 1):
        jobs.submit(a_spec("/bin/true"), request_id=f"r{number}")


def test_what_ended_long_ago_is_answered_for_as_ever(daemons: Daemons) -> None:
    with daemons.connect() as line:
        jobs = Jobs(line)
        living = jobs.submit(a_spec("/bin/sleep", "600")).job.job_id
        wait_until(lambda: shown_state(jobs.get(living).job) == "running", what="it runs")
        story = kinds(daemons, living)
        spec = a_spec("/bin/sh", "-c", "echo once upon a time; exit 3")
        old = jobs.submit(spec, request_id="mine").job.job_id
        wait_until(lambda: has_ended(jobs.get(old).job), what="it ends")
        daemons.said("admin", "token", "create")  # the newest event of all is never cut
        wait_until(lambda: kinds(daemons, old) == [], what="its story is cut")
        assert daemons.said("logs", old) == "once upon a time\n"

        daemons.kill("master")
        daemons.start("master")
        daemons.wait_for("master")
        check_old_job(daemons, old)
        again = jobs.submit(spec, request_id="mine").job
        assert (again.job_id, shown_state(again)) == (old, "failed")
        assert kinds(daemons, living)[: len(story)] == story, "of what lives nothing is cut"
        assert int(jobs.submit(a_spec("/bin/true")).job.job_id) == int(old) + 1
        watcher = daemons.dlq("wait", living, "--timeout", "2s")
        assert watcher.code == 124
        jobs.cancel(living, kill=True)


def test_a_user_who_submits_too_fast_may_come_again(daemons: Daemons) -> None:
    with daemons.connect() as line:
        jobs = Jobs(line)
        first = jobs.submit(a_spec("/bin/true"), request_id="r0").job.job_id
        with pytest.raises(TryAgain) as caught:
            flood(jobs)
        assert int(caught.value.metadata["retry_after_s"]) > 900
        said = daemons.dlq("submit", "-G", "1", "--", "/bin/true")
        assert said.code == 75
        assert "nothing was submitted; try again in" in said.err
        assert jobs.submit(a_spec("/bin/true"), request_id="r0").job.job_id == first
        assert daemons.said("queues")

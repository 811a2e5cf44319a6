"""An agent that has lost its records, and two agents with one certificate: real daemons, real
jobs.
"""

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlq.v1 import job_pb2
from dlq_client.jobs import Jobs
from support.harness import BRIEF_SILENCE_S, Daemons
from support.json_lines import json_lines
from support.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long(
        "unit/master/control/nodes/test_control_nodes.py",
        "unit/master/control/nodes/test_control_same_machine.py",
    ),
]

HOLD_S = 30  # half of it without contact, and its shim ends a job: an agent takes seconds to begin


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[Daemons]:
    """A master and one node."""
    made = Daemons(tmp_path, ("n1",), hold_s=HOLD_S, silence_s=BRIEF_SILENCE_S)
    with made.up():
        yield made


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[Daemons]:
    """The same, where a node may be silent for as long as a busy machine needs to start its
    agent.
    """
    made = Daemons(tmp_path, ("n1",))
    with made.up():
        yield made


def told(ledger: Path) -> Counter[str]:
    """How often a job has written which fact."""
    return Counter(str(line["what"]) for line in json_lines(ledger))


def lose_records(state_dir: Path) -> None:
    """All but who the node is."""
    for name in ("journal", "attempts", "scripts", "contact"):
        path = state_dir / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def test_a_job_of_an_agent_without_its_records_is_unknown_and_ends_before_it_runs_again(
    daemons: Daemons,
) -> None:
    ledger = daemons.root / "ledger"
    with daemons.connect() as line:
        jobs = Jobs(line)
        spec = daemons.ledger_job(600.0, 0)
        spec.resources.gpu_count = 8
        job_id = jobs.submit(spec).job.job_id
        wait_until(lambda: told(ledger)["alive"] > 0, what="the job runs")
        daemons.kill("n1")
        lose_records(daemons.root / "n1")
        daemons.start("n1")
        daemons.wait_for("n1")
        assert "rank_unexplained" in daemons.log("n1")
        assert jobs.get(job_id).attempts[-1].state == job_pb2.ATTEMPT_STATE_UNKNOWN
        waiting = jobs.submit(daemons.ledger_job(0.1, 0)).job.job_id

        daemons.kill("master")
        daemons.start("master")
        daemons.wait_for("master")
        wait_until(
            lambda: jobs.get(job_id).attempts[-1].attempt == 2,
            what="it runs again",
            timeout_s=120.0,
        )
        wait_until(lambda: told(ledger)["start"] >= 2, what="it has started", timeout_s=60.0)
        jobs.cancel(job_id, kill=True)
        wait_until(
            lambda: (
                jobs.get(waiting).job.exit_code == 0 and jobs.get(waiting).job.HasField("exit_code")
            ),
            what="the GPUs are free",
        )
    assert told(ledger)["overlap"] == 0


def test_a_fence_gives_up_what_an_agent_without_records_may_run(daemons: Daemons) -> None:
    with daemons.connect() as line:
        jobs = Jobs(line)
        job_id = jobs.submit(daemons.ledger_job(600.0, 0)).job.job_id
        wait_until(lambda: told(daemons.root / "ledger")["alive"] > 0, what="the job runs")
        daemons.kill("n1")
        lose_records(daemons.root / "n1")
        daemons.start("n1")
        daemons.wait_for("n1")
        daemons.said("admin", "node", "fence", "n1", "--reason", "nothing runs", "-y")
        wait_until(lambda: jobs.get(job_id).attempts[-1].attempt == 2, what="it is given up")


def test_the_second_agent_of_a_copied_state_directory_is_refused(patient: Daemons) -> None:
    shutil.copytree(
        patient.root / "n1", patient.root / "copy", ignore=shutil.ignore_patterns("ctl")
    )
    config = (patient.root / "n1.toml").read_text()
    (patient.root / "copy.toml").write_text(
        config.replace(f'"{patient.root / "n1"}"', f'"{patient.root / "copy"}"')
    )
    patient.wait_for("n1")
    before = patient.log("n1").count("welcomed")
    patient.start("copy")
    wait_until(
        lambda: patient.log("copy").count("another agent speaks for node n1") >= 3,
        what="it is refused again and again",
    )
    assert "dlq-nodeagent join" in patient.log("copy")
    assert "welcomed" not in patient.log("copy")
    assert patient.log("n1").count("welcomed") == before
    with patient.connect() as line:
        jobs = Jobs(line)
        job_id = jobs.submit(patient.ledger_job(0.1, 0)).job.job_id
        wait_until(lambda: told(patient.root / "ledger")["stop"] == 1, what="the job ends")
        patient.kill("master")
        patient.start("master")
        patient.wait_for("master")
        wait_until(lambda: patient.log("n1").count("welcomed") > before, what="the first is back")
        assert "welcomed" not in patient.log("copy")
        # The first restarts at once: its lock proves that its old process is gone.
        patient.kill("n1")
        patient.start("n1")
        patient.wait_for("n1")
        assert len(jobs.get(job_id).attempts) == 1
    patient.stop("copy")
    assert told(patient.root / "ledger") == Counter(start=1, stop=1)


def test_an_agent_whose_state_directory_is_removed_stops(daemons: Daemons) -> None:
    shutil.move(daemons.root / "n1", daemons.root / "gone")
    daemons.wait_for_failure("n1")
    assert "the state directory was removed or replaced" in daemons.log("n1")

"""GPUs that fall ill under real daemons: virtual ones whose health a script tells."""

import json
from collections.abc import Iterator

import pytest

from dlq.v1 import job_pb2, node_pb2
from dlq_cli.words import shown_state
from dlq_client.admin import Admin
from dlq_client.jobs import Jobs
from dlq_client.line.connection import Connection
from dlq_client.nodes import Nodes
from support.harness import Daemons
from support.json_lines import json_lines
from support.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long(
        "unit/master/control/nodes/test_control_gpu_health.py",
        "unit/master/control/nodes/test_control_withheld.py",
        "unit/nodeagent/devices/test_gpu_watch.py",
    ),
]

QUICK = '\n[gpus]\nlook_every = "100ms"\nfigures_every = "200ms"\nrelease_timeout = "1s"\n'


class Ward(Daemons):
    """Agents whose virtual GPUs are as `say` last said."""

    def _make_agent(self, name: str) -> None:
        super()._make_agent(name)
        config = self.root / f"{name}.toml"
        script = self.root / f"{name}.gpus"
        scripted = config.read_text().replace("H100-80GB", f"H100-80GB@{script}")
        config.write_text(scripted + QUICK)

    def say(self, name: str, *lines: str) -> None:
        """From now on the GPUs of this node are like this."""
        draft = self.root / f"{name}.draft"
        draft.write_text("".join(f"{line}\n" for line in lines))
        draft.rename(self.root / f"{name}.gpus")


@pytest.fixture(scope="module")
def ward(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ward]:
    """A master and two nodes; every test leaves them healthy and empty."""
    made = Ward(tmp_path_factory.mktemp("ward"), agents=("n1", "n2"))
    with made.up():
        yield made


@pytest.fixture
def line(ward: Ward) -> Iterator[Connection]:
    with ward.connect() as made:
        yield made


def end(jobs: Jobs, job_id: str) -> None:
    jobs.cancel(job_id, kill=True)
    wait_until(lambda: jobs.get(job_id).job.HasField("end_time"), what="the job has ended")


def withheld(node: node_pb2.Node) -> list[int]:
    return list(node.withheld_gpu_indexes)


def test_an_ill_gpu_is_withheld_through_the_death_of_both_daemons_until_somebody_clears_it(
    ward: Ward, line: Connection
) -> None:
    nodes = Nodes(line)
    ward.say("n1", "3|xid_48|an uncorrectable error", "1|temperature|64")
    wait_until(lambda: withheld(nodes.get("n1")) == [3], what="GPU 3 is withheld")
    shown = json.loads(ward.said("gpus", "n1", "--json"))["gpus"]
    assert [gpu["state"] for gpu in shown] == ["free"] * 3 + ["withheld"] + ["free"] * 4
    assert (shown[3]["conditions"][0]["code"], shown[3]["conditions"][0]["action"]) == (
        "xid_48",
        "reset",
    )
    wait_until(
        lambda: nodes.get("n1").gpu_statuses[1].temperature_celsius == 64,
        what="the temperature is told",
    )
    assert "GPU 3: xid_48 (an uncorrectable error), reset" in ward.said("nodes", "-R")
    ward.say("n1")
    for name in ("n1", "master"):
        ward.kill(name)
        ward.start(name)
        ward.wait_for(name)
    wait_until(
        lambda: nodes.get("n1").HasField("contact_time") and nodes.get("n1").gpu_statuses,
        what="n1 is back",
    )
    assert withheld(nodes.get("n1")) == [3]
    ward.said("admin", "node", "clear", "n1", "--gpu", "3")
    assert withheld(nodes.get("n1")) == []


def test_a_card_off_the_bus_drains_its_node_and_what_ran_there_goes_on_elsewhere(
    ward: Ward, line: Connection
) -> None:
    jobs, nodes = Jobs(line), Nodes(line)
    spec = ward.ledger_job(600.0, 0)
    spec.resources.gpu_count = 8
    job_id = jobs.submit(spec).job.job_id
    here = wait_until(lambda: list(jobs.get(job_id).job.node_ids), what="it is placed")[0]
    other = "n2" if here == "n1" else "n1"
    ward.say(here, "0|gpu_is_lost|")
    wait_until(lambda: "draining" in nodes.get(here).flags, what="the node is drained")
    (reason,) = [one for one in nodes.get(here).reasons if one.kind == "draining"]
    assert (reason.actor, reason.words) == ("master", "GPU 0: gpu_is_lost")
    wait_until(
        lambda: list(jobs.get(job_id).job.node_ids) == [other],
        what="the job has moved",
        timeout_s=60.0,
    )
    ward.say(here, "0|temperature|41")
    wait_until(
        lambda: nodes.get(here).gpu_statuses[0].temperature_celsius == 41,
        what="its agent has looked again: what is cleared now stays cleared",
    )
    ward.said("admin", "node", "undrain", here)
    assert withheld(nodes.get(here)) == [0], "undrained is not healed"
    Admin(line).clear_gpu_conditions(here)
    assert not nodes.get(here).reasons
    end(jobs, job_id)


def test_a_gpu_with_something_left_on_it_is_not_given_to_the_next_job(
    ward: Ward, line: Connection
) -> None:
    jobs, nodes = Jobs(line), Nodes(line)
    go = ward.root / "go"
    spec = job_pb2.JobSpec(command=["/bin/sh", "-c", f"until [ -e {go} ]; do sleep 0.1; done"])
    spec.working_directory = str(ward.root)
    spec.resources.gpu_count = 1
    spec.resources.node_ids.append("n1")
    job_id = jobs.submit(spec).job.job_id
    wait_until(lambda: shown_state(jobs.get(job_id).job) == "running", what="it runs")
    ward.say("n1", "0|process|4711|8589934592")
    go.touch()
    wait_until(lambda: "cleaning" in nodes.get("n1").flags, what="n1 is cleaning", timeout_s=90.0)
    (reason,) = [one for one in nodes.get("n1").reasons if one.kind == "cleaning"]
    assert "gpu_not_released" in reason.words
    assert "4711" in reason.words
    assert reason.HasField("since_time")
    # The node's flag and the job's end come by ways of their own.
    wait_until(lambda: jobs.get(job_id).job.HasField("end_time"), what="the job's end is told")
    ended = jobs.get(job_id).job
    assert (ended.state, ended.exit_code) == (job_pb2.JOB_STATE_COMPLETED, 0)
    assert nodes.get("n1").free_gpu_count == 7, "its GPU is nobody's"
    ward.said("cancel", str(job_id))
    ward.say("n1")
    wait_until(lambda: not nodes.get("n1").reasons, what="n1 is clean", timeout_s=60.0)
    assert nodes.get("n1").free_gpu_count == 8
    assert jobs.get(job_id).job == ended


def test_a_stranger_on_a_gpu_keeps_that_gpu_and_no_other_from_work(
    ward: Ward, line: Connection
) -> None:
    nodes = Nodes(line)
    ward.say("n1", "5|process|4711|8589934592")
    wait_until(lambda: withheld(nodes.get("n1")) == [5], what="GPU 5 is withheld")
    assert nodes.get("n1").free_gpu_count == 7
    ward.say("n1")
    wait_until(lambda: withheld(nodes.get("n1")) == [], what="it is free again")


def test_a_stranger_who_was_there_before_the_agent_shares_its_gpu_with_no_job(
    ward: Ward, line: Connection
) -> None:
    def told() -> list[str]:
        rows = json_lines(ward.root / "ledger") if (ward.root / "ledger").exists() else []
        return [row["what"] for row in rows if row["job"] == job_id]

    nodes, jobs = Nodes(line), Jobs(line)
    ward.kill("n1")
    ward.say("n1", *(f"{index}|process|4711|8589934592" for index in range(8)))
    spec = ward.ledger_job(0.1, 0)
    spec.resources.node_ids.append("n1")
    job_id = jobs.submit(spec).job.job_id
    ward.start("n1")
    wait_until(lambda: len(withheld(nodes.get("n1"))) == 8, what="all are withheld")
    assert told() == []
    ward.say("n1")
    wait_until(lambda: jobs.get(job_id).job.HasField("end_time"), what="it runs and ends")
    assert jobs.get(job_id).job.exit_code == 0
    assert told() == ["start", "stop"]

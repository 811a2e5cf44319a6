"""An agent that is away for longer than the hold, by agreement: real daemons, real shims, real
jobs.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dlq_client.jobs import Jobs
from dlq_client.nodes import Nodes
from dlq_common.clock import SteadyClock
from dlq_nodeagent.command import main as agents
from support.harness import BRIEF_SILENCE_S, Daemons
from support.json_lines import json_lines
from support.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long(
        "unit/master/control/nodes/test_control_maintenance.py",
        "integration/test_rpc_maintenance.py",
        "unit/nodeagent/test_core_holding.py",
    ),
]

HOLD_S = (
    12  # half of it may be lost to a machine that stands still, before the absence is announced
)


def maintenance(daemons: Daemons, *arguments: str) -> Result:
    """`dlq-nodeagent maintenance` on the host of n1."""
    command = ["maintenance", "--config", str(daemons.root / "n1.toml"), *arguments]
    return CliRunner().invoke(agents, command, env=daemons.environment())


def last_alive_s(ledger: Path) -> float:
    """When the job last wrote that it lives, by CLOCK_BOOTTIME."""
    return max((float(line["boottime_s"]) for line in json_lines(ledger)), default=0.0)


def alive_after(ledger: Path, instant_s: float) -> Callable[[], bool]:
    """Whether the job has lived to see that instant."""
    return lambda: last_alive_s(ledger) > instant_s


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    """A master and one node, which every test leaves up."""
    root = tmp_path_factory.mktemp("cluster")
    made = Daemons(root, ("n1",), hold_s=HOLD_S, silence_s=BRIEF_SILENCE_S)
    with made.up():
        yield made


def test_a_job_outlives_its_agent_and_a_master_for_longer_than_its_hold(daemons: Daemons) -> None:
    ledger = daemons.root / "ledger"
    clock = SteadyClock()
    with daemons.connect() as line:
        jobs, nodes = Jobs(line), Nodes(line)
        job_id = jobs.submit(daemons.ledger_job(600.0, 0)).job.job_id
        wait_until(alive_after(ledger, 0.0), what="the job runs")
        said = maintenance(daemons, "--for", "10m")
        assert said.exit_code == 0, said.stderr
        assert f"1 job is here, it holds out 10m{HOLD_S}s" in said.stdout
        daemons.stop("n1")
        away_s = clock.boottime_s()
        daemons.kill("master")
        daemons.start("master")
        daemons.wait_for("master")
        assert list(nodes.get("n1").flags) == ["maintenance"]
        assert nodes.get("n1").HasField("maintenance_end_time")
        wait_until(
            alive_after(ledger, away_s + HOLD_S + 1.0), what="it outlives its hold", timeout_s=60.0
        )

        daemons.start("n1")
        daemons.wait_for("n1")
        assert maintenance(daemons, "--end").exit_code == 0
        wait_until(lambda: not nodes.get("n1").flags, what="the node takes work again")
        found = jobs.get(job_id)
        assert [attempt.attempt for attempt in found.attempts] == [1]
        jobs.cancel(job_id, kill=True)


def test_without_a_master_the_answer_is_a_clear_no(daemons: Daemons) -> None:
    daemons.stop("master")
    said = maintenance(daemons, "--for", "2h")
    assert said.exit_code == 1
    assert "cannot be reached" in said.stderr
    assert "the longer hold is not confirmed" in said.stderr
    daemons.start("master")
    daemons.wait_for("master")
    said = maintenance(daemons, "--for", "9h")
    assert said.exit_code == 1
    assert "8h at most" in said.stderr


def test_without_a_running_agent_the_answer_is_a_clear_no(daemons: Daemons) -> None:
    daemons.stop("n1")
    said = maintenance(daemons, "--for", "2h")
    assert said.exit_code == 1
    assert "agent of node n1 is not connected" in said.stderr
    daemons.start("n1")
    daemons.wait_for("n1")

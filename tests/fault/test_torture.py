"""kill -9 under load: nothing acknowledged is lost, nothing is started twice, nothing running dies.

Real daemons and real jobs on loopback; clients speak through a line that loses every tenth reply.
The jobs write a ledger of their own, and a program that knows nothing of the product compares it
with what the clients were promised and with what the master says (tests/support/ledger_check.py).

A short run is part of `make test`; `make torture N=30` makes N kills of the master and N of agents.
"""

import os
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from dlq_client.jobs import Jobs
from dlq_common.clock import SteadyClock
from dlq_master.control.loop import failpoints
from support.cutting_proxy import CuttingProxy
from support.extent import times
from support.harness import BRIEF_SILENCE_S, Daemons
from support.json_lines import json_lines
from support.ledger_clients import drain, kill_at_random, load
from support.proofs import proved
from support.waiting import wait_until

N = int(os.environ.get("N", "30"))
SEED = int(os.environ.get("SEED", "1"))
PASSAGES = int(os.environ.get("PASSAGES", str(max(1, N // 4))))  # of each failpoint


def report(daemons: Daemons, proxy: CuttingProxy, found: dict[str, int]) -> None:
    """What was actually done, for the one who reads `make torture`."""
    kills = daemons.kills
    proved(
        "kills",
        kills_of_the_master=kills["master"],
        kills_of_agents=sum(kills.values()) - kills["master"],
        replies=proxy.replies,
        replies_lost=proxy.cuts,
        seed=SEED,
        **found,
    )


@pytest.mark.long(
    "fault/test_promise_kills.py", "fault/test_resize_kills.py", "property/test_core_world.py"
)
def test_a_few_kills_and_every_failpoint_lose_nothing(tmp_path: Path) -> None:
    daemons = Daemons(tmp_path)
    with daemons.up():
        with load(daemons, SEED) as proxy:
            kill_at_random(daemons, times(2, 3), times(2, 3), random.Random(SEED))
            # Each of these masters dies of its own; the next one finds what it has left.
            daemons.kill("master")
            for name in failpoints.NAMES:
                daemons.start("master", DLQ_DEBUG__FAILPOINT=f"{name}:4")
                daemons.wait_for_death("master")
            daemons.start("master")
            daemons.wait_for("master")
            daemons.stop("master")
            daemons.start("master")
            daemons.wait_for("master")
        found = drain(daemons)
        report(daemons, proxy, found)
    assert found["accepted"] > 0
    assert found["more_than_one_attempt"] == 0
    assert proxy.cuts > 0


@pytest.mark.torture
def test_many_kills_lose_nothing(tmp_path: Path) -> None:
    daemons = Daemons(tmp_path)
    with daemons.up():
        with load(daemons, SEED) as proxy:
            kill_at_random(daemons, N, N, random.Random(SEED))
        found = drain(daemons)
        report(daemons, proxy, found)
    assert daemons.kills["master"] >= N
    assert found["more_than_one_attempt"] == 0


@pytest.mark.torture
def test_lines_that_break_all_the_time_disturb_no_job(tmp_path: Path) -> None:
    """Agents too speak through a line that is cut; the daemons are killed now and then."""
    daemons = Daemons(tmp_path)
    with CuttingProxy(daemons.api, share=0.03, seed=SEED).running() as agents_line:
        daemons.dialled = agents_line.address
        with daemons.up():
            with load(daemons, SEED) as proxy:
                kill_at_random(daemons, N // 5, N // 5, random.Random(SEED))
                threading.Event().wait(float(N))
            found = drain(daemons)
            report(daemons, proxy, found)
        print(f"agents' lines cut: {agents_line.cuts}")  # noqa: T201 - a figure of the run
    assert found["more_than_one_attempt"] == 0
    assert agents_line.cuts > 0


@pytest.mark.torture
def test_a_daemon_that_freezes_for_a_while_disturbs_no_job(tmp_path: Path) -> None:
    """SIGSTOP for longer than a node may be silent, of the master and of every agent."""
    daemons = Daemons(tmp_path, silence_s=BRIEF_SILENCE_S)
    with daemons.up():
        with load(daemons, SEED) as proxy:
            for name in ("master", *daemons.agents, "master"):
                daemons.freeze(name)
                threading.Event().wait(9.0)
                daemons.thaw(name)
                threading.Event().wait(2.0)
        found = drain(daemons)
        report(daemons, proxy, found)
    assert found["more_than_one_attempt"] == 0


@pytest.mark.torture
@pytest.mark.parametrize("name", failpoints.NAMES)
def test_a_crash_at_each_of_many_passages_of_a_failpoint_loses_nothing(
    tmp_path: Path, name: str
) -> None:
    daemons = Daemons(tmp_path)
    with daemons.up():
        with load(daemons, SEED) as proxy:
            deaths = 0
            for passage in range(1, 1 + PASSAGES):
                daemons.kill("master")
                daemons.start("master", DLQ_DEBUG__FAILPOINT=f"{name}:{passage}")
                daemons.wait_for_death("master")
                deaths += 1
                daemons.start("master")
                daemons.wait_for("master")
        found = drain(daemons)
    assert found["more_than_one_attempt"] == 0
    proved(
        "deaths at a failpoint", failpoint=name, passages=PASSAGES, deaths=deaths,
        replies_lost=proxy.cuts, **found,
    )  # fmt: skip


@pytest.mark.torture
def test_a_job_whose_agent_stays_dead_ends_by_its_hold_and_only_then_runs_elsewhere(
    tmp_path: Path,
) -> None:
    hold_s = 12
    daemons = Daemons(tmp_path, ("n1", "n2"), hold_s=hold_s, silence_s=BRIEF_SILENCE_S)
    with daemons.up(), daemons.connect() as line:
        jobs = Jobs(line)
        job_id = jobs.submit(daemons.ledger_job(90.0, 0)).job.job_id
        ledger = tmp_path / "ledger"
        wait_until(lambda: _facts(ledger, "start"), what="it runs")
        (node,) = jobs.get(job_id).job.node_ids
        daemons.kill(node)
        killed_s = SteadyClock().boottime_s()
        wait_until(
            lambda: len(_facts(ledger, "start")) == 2, what="it runs elsewhere", timeout_s=60.0
        )
        jobs.cancel(job_id, kill=True)
        wait_until(lambda: jobs.get(job_id).job.HasField("end_time"), what="it ends")

    first, second = _facts(ledger, "start")
    last_s = max(x["boottime_s"] for x in _facts(ledger, "alive") if x["attempt"] == "1")
    assert (first["attempt"], second["attempt"]) == ("1", "2")
    assert _facts(ledger, "overlap") == []
    assert last_s < second["boottime_s"]
    assert last_s <= killed_s + hold_s, "its shim ends it, alone"
    # The last contact was at most a heartbeat before the kill; the margin beyond the hold is 5 s.
    assert second["boottime_s"] >= killed_s + hold_s


def _facts(ledger: Path, what: str) -> list[dict[str, Any]]:
    return [line for line in json_lines(ledger) if line["what"] == what]

"""Two real masters on one PostgreSQL: an operator looks at them, and hands the lead over."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlq_client.jobs import Jobs
from support.metric_pages import samples
from support.pair_daemons import PairDaemons
from support.ports import free_ports
from support.postgres_site import postgres_site
from support.waiting import wait_until

pytestmark = [
    pytest.mark.long("integration/test_masters.py", "unit/master/leader/test_leader_keeper.py"),
    pytest.mark.integration,
]


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[PairDaemons]:
    with postgres_site() as site, PairDaemons(tmp_path, site.primary).up() as made:
        assert isinstance(made, PairDaemons)
        yield made


def shown(daemons: PairDaemons) -> dict[str, Any]:
    """The masters by their address."""
    told = json.loads(daemons.said("admin", "leader", "show", "--json"))
    return {one["address"]: one for one in told["masters"]}


def reads(daemons: PairDaemons, address: str) -> bool:
    """Whether this standby reads the turns. In a hand-over no master may answer for a moment."""
    done = daemons.dlq("admin", "leader", "show", "--json")
    found = json.loads(done.out)["masters"] if done.code == 0 else []
    return any(one["address"] == address and one["read_ago_s"] is not None for one in found)


def read(port: int, page: str, status: int) -> str:
    """A page of the second master; "" where it answers with another status, or not at all."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}") as answer:
            found, text = answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        found, text = error.code, error.read().decode()
    except OSError:
        return ""
    return text if found == status else ""


def test_an_operator_hands_the_lead_over_and_back(daemons: PairDaemons) -> None:
    first, second = daemons.both.split(",")
    with daemons.connect() as line:
        job = Jobs(line).submit(daemons.ledger_job(5.0, 0)).job.job_id
        alone = shown(daemons)
        assert alone[first]["part"] == "leads"
        assert alone[second]["error"]
        refused = daemons.dlq("admin", "leader", "step-down")
        assert refused.code != 0
        assert "no standby has read all turns" in refused.err
        (port,) = free_ports(1)
        daemons.start("master2", DLQ_LISTEN__METRICS=f"127.0.0.1:{port}")
        wait_until(
            lambda: shown(daemons)[second]["read_ago_s"] is not None, what="it reads the turns"
        )
        both = shown(daemons)
        assert both[second]["part"] == "stands_by"
        assert both[second]["leader"] == first
        assert both[second]["epoch"] == both[first]["epoch"]
        assert both[second]["turn"] > 0
        told = read(port, "readyz", 503)
        assert told.startswith(f"stands by, epoch {both[first]['epoch']}, turn "), told
        assert f"{first} leads" in told
        page = samples(read(port, "metrics", 200))
        assert (page["dlq_leader"], page["dlq_standby_ready"]) == (0, 1)
        assert not any(name.startswith("dlq_jobs") for name in page)
        pid = daemons.pid("master")
        for here, other in ((first, second), (second, first)):
            told = daemons.said("admin", "leader", "step-down")
            assert told.startswith(f"{other} leads with epoch "), told
            if other == second:
                wait_until(
                    lambda: read(port, "readyz", 200).startswith("leads, "), what="it serves"
                )
                assert samples(read(port, "metrics", 200))["dlq_leader"] == 1
            wait_until(
                lambda: reads(daemons, here),  # noqa: B023 - at once
                what=f"{here} stands by",
            )
        assert daemons.pid("master") == pid
        assert daemons.is_alive("master"), "it goes on in the same process"
        wait_until(lambda: Jobs(line).get(job).job.HasField("end_time"), what="the job ends")
        assert [one.attempt for one in Jobs(line).get(job).attempts] == [1]
        daemons.stop("master2")
        assert "does not answer" in daemons.said("admin", "leader", "show")
        daemons.stop("master")

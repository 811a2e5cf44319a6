"""The part of a master on its page of metrics, and whether it is ready for calls."""

from __future__ import annotations

import asyncio
import math
import urllib.error
import urllib.request

import pytest

from dlq_common.clock import SteadyClock
from dlq_common.fence import LeaderFence
from dlq_master.leader.lease import MasterPart
from dlq_master.rpc.metrics.access import MetricsDoor
from dlq_master.rpc.metrics.exposition import text_page
from dlq_master.rpc.metrics.leading import leader_families, readiness
from dlq_master.rpc.metrics.metrics import MetricsServer, Readiness
from support.metric_pages import samples

LEADER = MasterPart(
    "head1:7320", True, 9.0, "head1:7320", LeaderFence("71", 1, 7), 4.5, 815, 0.0, "", ()
)
STANDBY = LEADER._replace(address="head2:7320", leads=False, read_ago_s=0.2)


def page(part: MasterPart | None) -> dict[str, float]:
    return dict(samples(text_page(leader_families(part))))


def test_a_leader_and_its_standby_tell_what_they_are() -> None:
    assert page(None) == {"dlq_leader": 1}
    assert page(LEADER) == {"dlq_leader": 1, "dlq_lease_left_seconds": 4.5, "dlq_turn": 815}
    assert page(STANDBY) == {
        "dlq_leader": 0,
        "dlq_lease_left_seconds": 4.5,
        "dlq_turn": 815,
        "dlq_standby_ready": 1,
        "dlq_standby_read_age_seconds": 0.2,
    }


@pytest.mark.parametrize(
    "change", [{"read_ago_s": 3.0}, {"read_ago_s": math.inf}, {"why": "turn 815 was seen"}]
)
def test_a_standby_that_lags_or_would_refuse_is_not_ready(change: dict[str, object]) -> None:
    assert page(STANDBY._replace(**change))["dlq_standby_ready"] == 0  # type: ignore[arg-type]


def test_a_standby_says_its_part_and_its_lag_and_is_not_ready_for_calls() -> None:
    assert readiness(None) == Readiness(True, "leads alone")
    assert readiness(LEADER) == Readiness(True, "leads, epoch 7, turn 815")
    assert not readiness(LEADER._replace(left_s=-1.0)).serves
    assert readiness(STANDBY) == Readiness(
        False, "stands by, epoch 7, turn 815, read 0.2 s ago; head1:7320 leads"
    )
    lost = STANDBY._replace(leader="", why="turn 816 was seen", read_ago_s=math.inf)
    assert readiness(lost).words == (
        "stands by, and has read nothing yet; nobody leads; would not lead: turn 816 was seen"
    )


@pytest.mark.parametrize(("part", "status"), [(LEADER, 200), (STANDBY, 503)])
async def test_the_status_says_whether_it_serves(part: MasterPart, status: int) -> None:
    server = MetricsServer(
        "127.0.0.1:0", {}, SteadyClock(), MetricsDoor(), ready=lambda: readiness(part)
    )
    await server.start()

    def ask() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/readyz") as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    assert await asyncio.to_thread(ask) == (status, f"{readiness(part).words}\n")
    await server.stop()

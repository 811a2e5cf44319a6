"""Storms: random load and random trouble over many lease boundaries, on a whole master with a
stepped clock.

No promise is broken without a word before its deadline; no GPU stays idle that somebody who waits
could use and that nobody is kept for; terms end when they end; and the working state is what is on
disk. A short storm is part of `make test`; `make storm BOUNDARIES=300 SEED=1` makes long ones, of
POLICY=dlq or another.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dlq_common.daemon.config import Seconds
from dlq_master.control.config import (
    JobsConfig,
    LeaseConfig,
    MasterConfig,
    NodesConfig,
    RetentionConfig,
    SchedulerConfig,
)
from support.extent import times
from support.storm import CALM, TERM_S, Found, Storm, Weather, jobs_of

BOUNDARIES = int(os.environ.get("BOUNDARIES", "300"))
SEED = int(os.environ.get("SEED", "1"))
POLICY = os.environ.get("POLICY", "dlq")
SHORT_SEED = 3
BREAKING_SEED = 12  # nodes are lost that promises count on
GPUS = 8  # of each node
NEVER = Seconds(1e8)


def a_config(policy: str) -> MasterConfig:
    return MasterConfig(
        scheduler=SchedulerConfig(policy),
        nodes=NodesConfig(start_grace=Seconds(0.0)),
        jobs=JobsConfig(concurrent_saves=1_000, retry_backoff=Seconds(0.0)),
        retention=RetentionConfig(ended_kept=Seconds(1e9), ended_most=1_000_000),
        lease=LeaseConfig(
            be_term=Seconds(TERM_S),
            slo_term=Seconds(TERM_S),
            # Nobody is silent in a storm: hosts boot.
            ttl=NEVER,
            unreachable=Seconds(2 * NEVER),
            hold=Seconds(3 * NEVER),
        ),
    )


async def storm(
    root: Path,
    policy: str,
    weather: Weather,
    boundaries: int,
    *,
    nodes: int = 6,
    seed: int = SEED,
    checked: int = 10,
) -> Found:
    names = {f"node-{number}": GPUS for number in range(1, nodes + 1)}
    jobs = list(jobs_of(seed, weather, boundaries, nodes * GPUS, 2 * GPUS))
    config = a_config(policy)
    async with Storm(root, config, names, seed=seed, weather=weather, checked=checked) as daemon:
        found = await daemon.rage(jobs, boundaries)
    tell(f"{policy}, seed {seed}", len(jobs), found)
    return found


def tell(name: str, jobs: int, found: Found) -> None:
    """What was actually done, for the one who reads `make storm`."""
    counts = "; ".join(f"{what} {count}" for what, count in sorted(found.counts.items()))
    times = f"{found.boundaries} boundaries, {found.instants} instants"
    print(f"\n{name}: {jobs} jobs, {times}; {counts}")  # noqa: T201 - the figures of the run


def judge(found: Found) -> None:
    assert not found.idle, "\n".join(found.idle)
    assert not found.silent, "\n".join(found.silent)
    assert found.counts["kept"] > 0 or not found.counts["promised"]


async def test_a_short_storm(tmp_path: Path) -> None:
    weather = Weather(boots=0.4, drains=0.3, kills=0.3)
    found = await storm(
        tmp_path, "dlq", weather, times(12, 30), nodes=3, seed=BREAKING_SEED, checked=1
    )
    judge(found)
    assert any(what.startswith("given up") for what in found.counts), "a storm that breaks nothing"


@pytest.mark.long("fault/test_storms.py::test_a_short_storm")
async def test_a_storm_in_which_hosts_are_lost_under_those_who_are_measured(tmp_path: Path) -> None:
    weather = Weather(missing=0.5, boots=0.7)
    found = await storm(tmp_path, "chronus", weather, 20, nodes=3, seed=SHORT_SEED, checked=1)
    judge(found)
    assert found.counts["trials lost"] > 0


@pytest.mark.long("fault/test_storms.py::test_a_short_storm")
async def test_a_storm_in_which_jobs_grow_and_shrink(tmp_path: Path) -> None:
    weather = Weather(load=0.7, deadlines=0.3, boots=0.5, drains=0.4, elastic=0.7)
    found = await storm(tmp_path, "dlq", weather, 20, nodes=3, seed=SHORT_SEED, checked=1)
    judge(found)
    assert found.counts["resized"] > 0


@pytest.mark.torture
async def test_a_storm(tmp_path: Path) -> None:
    judge(await storm(tmp_path, POLICY, Weather(), BOUNDARIES))


@pytest.mark.torture
async def test_in_calm_weather_every_promise_is_kept(tmp_path: Path) -> None:
    found = await storm(tmp_path, POLICY, CALM, BOUNDARIES)
    judge(found)
    assert found.counts["kept"] == found.counts["promised"]

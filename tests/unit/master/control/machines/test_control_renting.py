"""For whom machines are rented, and what is learned from those who have ended on them, or
elsewhere.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlq_common.daemon.config import Seconds
from dlq_master.control.stimuli import SetTeam
from dlq_master.model.ids import AttemptKey
from dlq_master.model.jobs.band import Band
from dlq_master.store.tables.tenants import Member, Team, TeamRules
from support.lent_servers import Server
from support.master_harness import ROOT
from support.rented import HOUR_S, SPOT, Site

SLOW = replace(SPOT, boot=Seconds(3000.0))  # any boundary comes before such a machine


def busy(*, gives_way: bool) -> Site:
    """A job of which nobody knows how long it runs has the own node, since a minute."""
    site = Site(SLOW, own=4)
    if gives_way:
        site = Site(SLOW, own=4, policy="dlq", min_run="off")
    runs_there(site)
    site.tick(60.0)
    return site


def runs_there(site: Site) -> AttemptKey:
    """A job that has the whole own node."""
    assert site.own is not None
    key = AttemptKey(site.master.submit(4).job_id, 1)
    site.tick()
    site.own.obey()
    site.own.start(key)
    site.own.report()
    return key


def test_no_machine_is_rented_for_who_takes_over_at_the_boundary() -> None:
    site = busy(gives_way=True)
    job_id = site.submit(4, due_s=1.0, weight=1e6, lasts_s=60.0)
    for _ in range(5):
        site.tick()
    assert site.machines() == {}
    job = site.master.job(job_id)
    assert job.foretold is not None
    # To the boundary and 60 s; not the hour with which who runs is reckoned.
    assert job.foretold.own_late == pytest.approx(1e6 / HOUR_S * 298.0)
    site.tick(600.0)
    assert site.own is not None
    site.own.obey()
    assert any(rank.noticed for rank in site.own.ranks.values()), "who runs is to give way"


def test_a_machine_is_rented_where_nobody_gives_way() -> None:
    site = busy(gives_way=False)
    job_id = site.submit(4, due_s=1.0, weight=1e6, lasts_s=60.0)
    site.tick()
    assert site.only().jobs == (job_id,)


@pytest.mark.parametrize(("comes", "speed"), [(True, 2.0), (False, 1.0)])
def test_a_run_time_is_learned_for_the_gpus_on_which_it_was(comes: bool, speed: float) -> None:
    """A machine was asked for in either case; in one the own node falls free before it is there."""
    site = Site(replace(SPOT, speed=2.0), own=4)
    assert site.own is not None
    first = runs_there(site)
    key = AttemptKey(site.submit(lasts_s=60.0, due_s=1.0, weight=1e6), 1)
    site.tick()
    site.tick()
    if comes:
        host: Server = site.boot()
    else:
        host = site.own
        host.exit(first, 0)
        host.report()
    for _ in range(3):
        site.tick()
    host.obey()
    host.start(key)
    host.report()
    site.tick()
    host.exit(key, 0)
    host.report()
    learned = site.master.state.cluster.ran[-1]
    assert (learned.job, learned.gpus, learned.speed) == (str(key.job_id), 4, speed)


def test_nothing_is_rented_for_who_is_beyond_the_limit_of_its_team() -> None:
    site = Site(own=4, policy="dlq")
    limited(site, 4)
    site.master.submit(4, run_estimate_s=HOUR_S)
    late = site.submit(4, due_s=1.0, weight=1e6)
    site.tick()
    assert site.master.job(late).band is Band.LIMIT
    assert site.machines() == {}
    limited(site, 8)
    site.tick()
    assert site.only().jobs == (late,)


def test_a_machine_for_who_is_beyond_the_limit_of_its_team_by_now_is_given_back() -> None:
    site = Site(own=4, policy="dlq")
    limited(site, 8)
    site.master.submit(4, run_estimate_s=HOUR_S)
    late = site.submit(4, due_s=1.0, weight=1e6)
    site.tick()
    limited(site, 4)
    site.tick()
    assert site.master.job(late).band is Band.LIMIT
    assert not site.only().open


def limited(site: Site, gpus: int) -> None:
    """All users of the tests are of one team that may hold so many GPUs."""
    team = Team("vision", 0.0, TeamRules(gpu_limit=gpus), None, (Member("alice"),), 0)
    site.master.ask(SetTeam(caller=ROOT, request_id="", team=team, force=False))

"""Machines are asked for once, used by whom they were rented for, and given back empty, whatever
happens between.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlq_common.daemon.config import Seconds
from dlq_common.errors import NotFound, PermissionDenied, TryAgain
from dlq_master.control.composition.wiring import WIRING
from dlq_master.control.loop.turn import Turn
from dlq_master.control.machines import run_times
from dlq_master.control.pool_config import RentingConfig
from dlq_master.control.stimuli import AskedLateness, Caller, ExplainJob, SetNodeFlags
from dlq_master.control.stimuli.machines import AnnounceLeave, Listed, ProviderTold, StopMachines
from dlq_master.model.estimates.estimate import Basis, Confidence, Source
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.nodes.node import NodeFlag
from dlq_master.model.resources import Request
from dlq_master.model.words.sentence import sentence
from dlq_master.providers.port import ProviderFailed
from support.lent_servers import saves
from support.master_harness import ROOT
from support.rented import HOUR_S, SPOT, RentedHost, Site


def up(site: Site) -> RentedHost:
    """A job waits, and its machine has come."""
    site.tick()
    site.tick()
    host = site.boot()
    site.tick()
    assert site.only().state == "up"
    site.tick()  # whoever it is for starts
    return host


def running(site: Site, host: RentedHost, job_id: int) -> AttemptKey:
    key = AttemptKey(site.master.job(job_id).job_id, 1)  # type: ignore[arg-type]
    host.obey()
    host.start(key)
    host.report()
    assert site.master.attempt(key.job_id).state == "running"
    return key


def test_a_machine_is_rented_used_emptied_and_given_back() -> None:
    site = Site()
    job_id = site.submit()
    site.tick(serve=False)
    machine = site.only()
    assert (machine.state, machine.jobs, site.provider.started) == ("starting", (job_id,), [])
    site.desk.serve()
    assert site.provider.started == [machine.request_id]
    site.tick()
    host = site.boot()
    site.tick()
    assert site.only().state == "up"
    site.tick()
    assert site.master.job(job_id).live_attempt == 1, site.master.story(job_id)
    key = running(site, host, job_id)
    site.tick()
    assert site.only().state == "up", "somebody is there"
    host.exit(key, 0)
    host.report()
    site.tick()
    assert site.only().state == "draining"
    site.tick()
    host.answer()
    site.tick()
    assert (site.only().state, site.provider.there) == ("away", {})
    assert machine.node_id not in site.master.state.cluster.nodes
    words = [word for word in site.master.words() if word.startswith("machine_")]
    assert words == [
        "machine_asked_for",
        "machine_up",
        "machine_draining",
        "machine_stopping",
        "machine_away",
    ]
    end_s = site.only().end_s
    assert end_s is not None
    assert site.only().cost(1e9) == pytest.approx(10.0 * (end_s - machine.asked_s) / HOUR_S)


def test_nobody_else_starts_on_a_rented_machine() -> None:
    site = Site()
    site.submit(2)
    other = site.master.submit(1).job_id
    up(site)
    assert site.master.job(other).live_attempt is None
    assert not site.master.node(site.only().node_id).open


def test_it_is_given_back_only_when_its_devices_are_empty() -> None:
    from dlq_master.control.stimuli.loans import Reading

    site = Site()
    job_id = site.submit()
    host = up(site)
    key = running(site, host, job_id)
    host.exit(key, 0)
    host.report()
    host.held = tuple(Reading(gpu, 8 * 1024**3, 1) for gpu in range(4))
    for _ in range(3):
        site.tick()
        host.answer()
    assert site.only().state == "draining"
    host.held = None
    site.tick()
    host.answer()
    site.tick()
    assert site.only().state == "away"


def test_a_start_that_fails_half_way_is_found_again_and_paid_once() -> None:
    """The provider has started it and dies before it says so; asked again, it is first asked what
    is there.
    """
    site = Site()
    site.submit()

    def lost(verb: str) -> None:
        if verb == "start":
            raise ProviderFailed("killed after 60 s")

    site.provider.after = lost
    site.tick()
    assert site.master.words().count("machine_start_failed") == 1
    site.provider.after = lambda _verb: None
    for _ in range(6):
        site.tick()
    assert site.only().instance_id == "i-1"
    assert site.provider.calls.count(f"start {site.only().request_id}") == 1, "it was listed"
    assert len(site.provider.started) == 1


@pytest.mark.parametrize("there", [("i-1", "i-2"), ("i-2", "i-1")])
def test_a_provider_that_makes_two_machines_of_one_request_is_told_and_both_are_stopped(
    there: tuple[str, str],
) -> None:
    site = Site(renting=RentingConfig(look_every=Seconds(5.0)))
    site.submit()
    site.tick()
    name = site.only().request_id
    left = list(there)
    site.provider.list = lambda: tuple(Listed(name, one) for one in left)  # type: ignore[method-assign]
    stopped = []

    def stop(request_id: str, instance_id: str) -> bool:
        """As a program that looks at the instance only."""
        stopped.append(instance_id)
        left.remove(instance_id)
        return True

    site.provider.stop = stop  # type: ignore[method-assign]
    for _ in range(4):
        site.tick(5.0)
    assert site.machines()[name].fault == "its provider calls it i-1, and i-2 too"
    assert site.machines()[name].state == "failed"
    assert site.master.words().count("machine_twice") == 1
    assert (sorted(stopped), left) == (["i-1", "i-2"], [])


def test_what_is_listed_while_a_start_hangs_does_not_count_as_a_look_after_it() -> None:
    """The list is answered before the machine is there; then the call that has started it is
    killed.
    """
    site = Site(renting=RentingConfig(look_every=Seconds(1.0)))
    site.submit()
    site.tick(serve=False)
    (start,) = [act for act in site.desk.acts if act.verb == "start"]
    site.desk.acts.remove(start)
    for _ in range(4):
        site.tick()
    site.provider.there[start.request_id] = "i-1"
    site.master.turn(ProviderTold(act=start, fault="did not end within 3 s and was killed"))
    for _ in range(4):
        site.tick()
    assert site.only().instance_id == "i-1"
    assert "start" not in " ".join(site.provider.calls)


def test_a_provider_that_never_answers_is_given_up_after_three_tries() -> None:
    site = Site()
    site.submit()

    def hangs(verb: str) -> None:
        if verb == "start":
            raise ProviderFailed("did not end within 60 s and was killed")

    site.provider.before = hangs
    for _ in range(30):
        site.tick()
    machine = site.only()
    assert (machine.state, machine.tries) == ("failed", 0)
    assert "it could not be started" in machine.fault
    assert site.provider.calls.count(f"start {machine.request_id}") == 3
    assert "again in" in site.master.state.machines.words["spot"]
    for _ in range(40):
        site.tick()
    assert len(site.machines()) == 2, "after a rest the pool is asked again"


def test_a_machine_that_does_not_come_is_given_back() -> None:
    site = Site()
    site.submit()
    site.tick()
    for _ in range(7):
        site.tick(10.0)
    machine = next(iter(site.machines().values()))
    assert (machine.state, machine.fault) == ("failed", "it did not come within 60 s")
    assert site.provider.there == {}
    assert machine.request_id not in site.master.state.people.tokens


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"instance_id": "i-9"}, "it is i-9, and its provider says that it is i-1"),
        ({"instance_id": ""}, "it is nameless"),
        ({"gpus": 2}, "it has 2 GPUs"),
        ({"pool_name": "other"}, "says pool other"),
    ],
)
def test_a_wrong_host_is_refused_and_its_machine_given_back(
    wrong: dict[str, object], words: str
) -> None:
    site = Site()
    site.submit()
    site.tick()
    refused = site.refusal(**wrong)
    assert isinstance(refused, PermissionDenied)
    assert words in refused.what
    site.tick()
    site.tick()
    machine = next(iter(site.machines().values()))
    assert (machine.state, machine.fault.startswith("wrong host")) == ("failed", True)
    assert site.provider.there == {}
    assert site.master.words().count("host_refused") == 1


def test_a_host_that_nobody_asked_for_is_refused() -> None:
    site = Site()
    host = RentedHost(site.master, NodeId("stranger"), pool_name="spot", instance_id="i-7")
    with pytest.raises(PermissionDenied, match="nobody has asked pool spot"):
        host.hello()
    site.tick()
    assert "host_refused" in site.master.words()


def test_an_agent_that_is_faster_than_its_provider_is_told_to_come_again() -> None:
    site = Site()
    site.submit()
    site.tick(serve=False)
    assert isinstance(site.refusal(), TryAgain)
    site.desk.serve()
    assert site.refusal(instance_id="i-1") is None


def silent(site: Site, host: RentedHost, seconds: int = 25) -> None:
    """Nothing is heard of its agent for so long: more than the TTL."""
    host.cut(noticed=False)
    for _ in range(seconds):
        site.tick()


def test_a_silent_machine_that_its_provider_has_no_more_is_lost_at_once_and_not_paid_on() -> None:
    site = Site(renting=RentingConfig(look_every=Seconds(5.0)))
    job_id = site.submit()
    host = up(site)
    running(site, host, job_id)
    for _ in range(6):
        site.tick(10.0)
    first = site.only().request_id
    site.provider.there.clear()
    silent(site, host)
    site.tick()
    machine = site.machines()[first]
    assert (machine.state, machine.fault) == ("away", "lost: its provider has it no more")
    job = site.master.job(job_id)
    assert (job.state, job.live_attempt) == ("queued", None)
    assert site.machines().keys() - {first}, "another one is rented for it"


def test_a_machine_that_lists_lack_stays_while_its_agent_is_heard_and_is_told_once() -> None:
    site = Site(renting=RentingConfig(look_every=Seconds(5.0)))
    job_id = site.submit()
    host = up(site)
    running(site, host, job_id)
    there = dict(site.provider.there)
    for told in (1, 2):
        site.provider.there.clear()
        for _ in range(12):
            site.tick()
        assert (site.only().state, site.master.attempt(job_id).state) == ("up", "running")
        assert site.master.words().count("machine_unlisted") == told
        site.provider.there.update(there)
        for _ in range(6):
            site.tick()
    site.master.ask(StopMachines(caller=ROOT, request_id="s", machine_ids=(host.node_id,)))
    site.provider.there.clear()
    for _ in range(6):
        site.tick()
    assert site.only().state == "draining", "who runs there may save"
    assert "attempt_node_lost" not in site.master.words()


@pytest.mark.parametrize("came", [False, True])
def test_after_a_machine_that_is_gone_as_soon_its_pool_rests(came: bool) -> None:
    site = Site(renting=RentingConfig(look_every=Seconds(5.0)))
    site.submit()
    host = up(site) if came else None
    site.tick()
    site.provider.there.clear()
    if host is not None:
        silent(site, host)
    for _ in range(10):
        site.tick()
    assert (site.only().state, site.only().fault) == ("failed", "lost: its provider has it no more")
    assert "again in" in site.master.state.machines.words["spot"]
    for _ in range(30):
        site.tick()
    assert len(site.machines()) == 2, "after a rest the pool is asked again"


def test_after_a_machine_that_was_up_and_came_under_two_names_its_pool_rests() -> None:
    site = Site(renting=RentingConfig(look_every=Seconds(5.0)))
    site.submit()
    host = up(site)
    name, left = site.only().request_id, ["i-1", "i-2"]
    site.provider.list = lambda: tuple(Listed(name, one) for one in left)  # type: ignore[method-assign]
    for _ in range(6):
        site.tick()
    assert site.only().state == "draining"
    host.obey()
    left.clear()
    silent(site, host)
    for _ in range(3):
        site.tick()
    assert site.only().state == "failed"
    assert "again in" in site.master.state.machines.words["spot"]


def test_what_is_taken_back_by_its_provider_is_emptied_in_time() -> None:
    site = Site()
    job_id = site.submit()
    host = up(site)
    key = running(site, host, job_id)
    node = Caller(host.node_id, "node")
    ask = AnnounceLeave(caller=node, request_id="l1", node_id=host.node_id, leave_s=30.0)
    assert site.master.ask(ask) == 1
    assert site.master.ask(ask) == 1, "said again"
    assert site.master.attempt(job_id).grace_s == 30.0
    assert site.only().state == "draining"
    saves(host, key)
    site.tick()
    host.answer()
    site.tick()
    assert site.machines()[host.node_id].state == "away"
    assert site.master.job(job_id).state == "queued"


def test_people_give_machines_back() -> None:
    site = Site()
    site.submit()
    site.tick()
    with pytest.raises(NotFound):
        site.master.ask(StopMachines(caller=ROOT, request_id="s0", machine_ids=("spot-9-9",)))
    name = site.only().request_id
    ask = StopMachines(caller=ROOT, request_id="s1", machine_ids=(name,))
    assert site.master.ask(ask) == (name,)
    assert site.master.ask(ask) == (name,), "the same answer"
    assert site.only().state == "stopping"
    site.tick()
    assert (site.machines()[name].state, site.machines()[name].fault) == ("away", "stopped by root")


def test_who_runs_on_a_machine_stays_there_until_people_give_it_back() -> None:
    """The own node falls free long before it was expected to."""
    site = Site(own=4)
    assert site.own is not None
    first = site.master.submit(4, run_estimate_s=10 * HOUR_S).job_id
    site.own.obey()
    site.own.start(AttemptKey(first, 1))
    site.own.report()
    job_id = site.submit(4)
    host = up(site)
    key = running(site, host, job_id)
    site.own.exit(AttemptKey(first, 1), 0)
    site.own.report()
    for _ in range(5):
        site.tick()
    assert (site.only().state, site.master.job(job_id).live_attempt) == ("up", 1)
    names = (site.only().request_id,)
    site.master.ask(StopMachines(caller=ROOT, request_id="s1", machine_ids=names))
    saves(host, key)
    site.tick()
    assert site.master.attempt(job_id).lease.allocation.node_ids == ("own01",)
    host.answer()
    site.tick()
    assert (site.only().state, site.master.job(job_id).live_attempt) == ("away", 2)


def why(site: Site, job_id: JobId) -> str:
    """The first reason why it does not run, in words."""
    told = site.master.ask(ExplainJob(job_id=job_id))
    first = told.reasons[0]
    return f"{first.code.value}: {sentence(first, told.job)}"


def test_who_waits_is_told_that_its_machine_rests_on_a_guess() -> None:
    site = Site()
    job_id = site.submit()
    site.tick()
    guess = Basis(Source.HISTORY, Confidence.LOW, rests_on="5 runs with other arguments on H100")
    site.master.state.cluster.put_job(site.master.job(job_id)._replace(basis=guess))
    assert why(site, job_id).endswith(
        "in 20 s; its run time is a guess by 5 runs with other arguments on H100"
    )


def test_who_waits_is_told_which_machine_comes_or_why_none_does() -> None:
    site = Site(replace(SPOT, most=1))
    job_id = site.submit()
    assert why(site, job_id).startswith("no_nodes"), "nobody has looked yet"
    site.tick()
    name = site.only().request_id
    assert (
        why(site, job_id)
        == f"machine_coming: a machine is rented for it: {name} of pool spot has been asked for, "
        "and should be there in 20 s"
    )
    other = site.submit(request_id="other")
    site.tick()
    assert (
        why(site, other)
        == "not_rented: nothing can be rented for it now: pool spot: 1 machines are there, which "
        "is the most"
    )
    site.tick(30.0)
    assert why(site, job_id).endswith("should be there by now")
    for _ in range(4):
        site.tick(10.0)
    assert site.only().state == "failed"
    assert "the last machines were of no use: again in" in why(site, job_id)


def test_who_is_expected_in_time_on_the_own_nodes_is_told_of_no_machine() -> None:
    site = Site(replace(SPOT, most=1), own=4)
    site.master.submit(4, run_estimate_s=60.0)
    job_id = site.submit(4, due_s=2 * HOUR_S)
    site.tick()
    assert why(site, job_id).startswith("resources")


def test_a_stop_is_asked_again_until_it_is_gone() -> None:
    site = Site()
    site.submit()
    site.tick()
    name = site.only().request_id

    def fails(verb: str) -> None:
        if verb == "stop":
            raise ProviderFailed("no route to host")

    site.provider.before = fails
    site.master.ask(StopMachines(caller=ROOT, request_id="s1", machine_ids=(name,)))
    for _ in range(10):
        site.tick()
    assert site.machines()[name].open, "it is paid as long as nobody says that it is gone"
    site.provider.before = lambda _verb: None
    site.tick(300.0)
    assert site.machines()[name].state == "away"


def test_own_nodes_come_first_and_the_machine_that_is_not_needed_goes_back() -> None:
    site = Site(own=4)
    quick = site.master.submit(4, run_estimate_s=60.0).job_id
    late = site.submit(4, due_s=2 * HOUR_S, lasts_s=HOUR_S)
    assert site.master.job(quick).live_attempt == 1
    site.tick()
    assert not site.machines(), "in a minute it starts on the own node, and is in time"
    assert site.master.job(late).live_attempt is None


def test_it_is_rented_only_where_being_late_costs_more() -> None:
    """Own GPUs are held for 10 h. An hour on a machine costs 10; being 9 h late costs 9 or 90."""
    for weight, rented in ((1.0, 0), (10.0, 1)):
        site = Site(own=4)
        site.master.submit(4, run_estimate_s=10 * HOUR_S)
        site.submit(4, due_s=2 * HOUR_S, lasts_s=HOUR_S, weight=weight)
        site.tick()
        assert len(site.machines()) == rented, f"weight {weight}"


def test_an_own_node_that_takes_no_work_now_is_not_as_if_there_were_none() -> None:
    """It is reckoned with in an hour: an hour more of being late costs 1, or 100, and an hour on a
    machine 10.
    """
    for how in ("drained", "silent"):
        for weight, rented in ((1.0, 0), (100.0, 1)):
            site = Site(own=4)
            own = site.own
            assert own is not None
            if how == "drained":
                site.master.turn(
                    SetNodeFlags(
                        caller=ROOT,
                        request_id="d",
                        node_id=own.node_id,
                        set_flags=frozenset([NodeFlag.DRAINING]),
                        clear_flags=frozenset(),
                        reason="fan",
                    )
                )
            else:
                site.own = None
                own.cut()
                site.tick(30.0)
            site.submit(4, due_s=1.0, lasts_s=HOUR_S, weight=weight)
            site.tick()
            site.tick()
            assert len(site.machines()) == rented, (how, weight)


def test_nobody_is_reckoned_to_run_beyond_its_time_limit() -> None:
    """Nobody knows how long it runs, but that it is no longer than a minute."""
    site = Site(own=4)
    site.master.submit(4, run_estimate_s=600.0)
    late = AskedLateness(12.0 / HOUR_S, after_s=600.0)
    job_id = site.master.submit(4, lateness=late, time_limit_s=60.0).job_id
    site.tick()
    turn = Turn(site.master.state, site.master.store, site.master.clock.now_s(), WIRING)
    times, job = run_times.run_times(turn), site.master.job(job_id)
    (table,) = times.left_s([job])
    assert table[0, 3] == 60.0
    (stands,) = times.line_entries([job])
    assert stands.lasts_s == 60.0


def test_budgets_are_kept() -> None:
    for renting in (RentingConfig(most_per_hour=9.0), RentingConfig(most_per_day=5.0)):
        site = Site(renting=renting)
        site.submit()
        site.tick()
        assert not site.machines()
    site = Site(renting=RentingConfig(most_per_hour=15.0))
    site.submit()
    site.submit()
    site.tick()
    assert len(site.machines()) == 1, "two would cost 20 an hour"


def test_all_go_back_before_their_provider_takes_them() -> None:
    pool = replace(SPOT, available_until="2001-01-01T00:00:00Z", leave=Seconds(60.0))
    site = Site(pool)
    site.submit()
    site.tick()
    assert not site.machines(), "it is over already"
    assert site.master.state.machines.words["spot"] == "its provider takes all back"


def test_a_pool_that_nobody_names_any_more_is_told() -> None:
    site = Site()
    site.submit()
    site.tick()
    site.master.config = replace(site.master.config, pools=())
    site.restart()
    site.tick()
    assert site.master.words().count("machine_without_pool") == 1


def test_everything_stands_after_a_restart_of_the_master() -> None:
    site = Site()
    job_id = site.submit()
    host = up(site)
    key = running(site, host, job_id)
    before = site.only()
    site.restart()
    host.hello()
    site.tick()
    assert site.only() == before
    assert site.provider.started == [before.request_id]
    host.exit(key, 0)
    host.report()
    site.tick()
    assert site.only().state == "draining"


def test_a_machine_that_was_asked_for_before_the_master_died_is_asked_for_once() -> None:
    site = Site()
    site.submit()
    site.tick(serve=False)
    name = site.only().request_id
    site.restart()  # the act never reached the provider
    for _ in range(4):
        site.tick()
    assert site.provider.started == [name]
    assert site.machines().keys() == {name}


def test_what_a_provider_lists_and_nobody_asked_for_is_told_and_left_alone() -> None:
    site = Site()
    site.submit()
    site.provider.there["theirs"] = "i-77"
    site.tick()
    site.tick(40.0)
    assert site.master.words().count("machine_unasked") == 1
    assert "theirs" in site.provider.there


def test_one_that_comes_after_it_was_given_up_is_stopped() -> None:
    site = Site()
    site.submit()
    site.tick()
    name = site.only().request_id
    site.master.ask(StopMachines(caller=ROOT, request_id="s1", machine_ids=(name,)))
    site.tick()
    assert site.machines()[name].state == "away"
    site.provider.there[name] = "i-1"  # half of a start that was killed
    site.tick(40.0)
    site.tick()
    assert name not in site.provider.there


def test_gpus_of_the_wrong_kind_are_a_wrong_host() -> None:
    site = Site(replace(SPOT, gpu_type="A100"))
    site.submit()
    site.tick()
    refused = site.refusal()
    assert isinstance(refused, PermissionDenied)
    assert "4 x A100 are paid for" in refused.what


def sized(site: Site, *, due_s: float, lasts_s: float, weight: float = 1000.0) -> int:
    """A job that names no number of GPUs; `lasts_s`: on one."""
    request = Request(gpus=1, sizes=(1, 2, 4, 8))
    return site.submit(1, due_s=due_s, lasts_s=lasts_s, weight=weight, request=request, sized=True)


def test_how_many_gpus_a_job_gets_follows_from_when_it_is_due() -> None:
    """4 GPUs do in an hour what one does in 3.2 h: as many as make it in time, and no more."""
    for due_s, gpus in ((6 * HOUR_S, 1), (2.2 * HOUR_S, 2), (1.2 * HOUR_S, 4)):
        site = Site(policy="dlq")
        job_id = sized(site, due_s=due_s, lasts_s=3.2 * HOUR_S)
        up(site)
        held = site.master.attempt(job_id).lease.allocation.width  # type: ignore[arg-type]
        assert held == gpus, f"due in {due_s / HOUR_S} h"


def test_who_may_grow_on_the_own_nodes_is_reckoned_with_what_it_would_get() -> None:
    """On one GPU it would be late; on all that fall free in ten minutes it is in time."""
    for policy, rented in (("dlq", 0), ("best-effort", 1)):
        site = Site(own=4, policy=policy)
        site.master.submit(4, run_estimate_s=600.0)
        sized(site, due_s=1.5 * HOUR_S, lasts_s=3.2 * HOUR_S)
        site.tick()
        assert len(site.machines()) == rented, policy


def test_run_times_are_learned_from_jobs_that_have_ended() -> None:
    """Nobody says how long it runs; those of its family before it took six minutes."""
    site = Site(own=4)
    assert site.own is not None
    for number in range(6):
        job_id = site.master.submit(4, family="train", request_id=f"f{number}").job_id
        site.tick()
        site.own.obey()
        key = AttemptKey(job_id, 1)
        site.own.start(key)
        site.own.report()
        for _ in range(36):
            site.tick(10.0)
        site.own.exit(key, 0)
        site.own.report()
        assert site.master.job(job_id).state == "completed"
    site.master.submit(4, run_estimate_s=10 * HOUR_S)
    job_id = site.master.submit(
        4, family="train", lateness=AskedLateness(100.0 / HOUR_S, after_s=600.0)
    ).job_id
    site.tick(31.0)
    turn = Turn(site.master.state, site.master.store, site.master.clock.now_s(), WIRING)
    (table,) = run_times.run_times(turn).left_s([site.master.job(job_id)])
    assert table[0, 3] == pytest.approx(360.0, rel=0.1)
    assert len(site.machines()) == 1

"""Servers of the inference side: lent and gone only when their devices say that they are empty."""

from collections.abc import Callable

import pytest

from dlq_common.errors import Conflict, IllegalTransition, NotFound
from dlq_master.control.loans import reclaims
from dlq_master.control.stimuli import AskedDeadline, FenceNode, ForgetNode, PlanMade, SetNodeFlags
from dlq_master.control.stimuli.loans import (
    Found,
    Reading,
    Reclaimed,
    TakeLook,
    ToChoose,
)
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.job import RunRules
from dlq_master.model.nodes.node import NodeFlag
from dlq_master.model.plan import Plan, Reclaim
from dlq_master.model.resources import Request
from dlq_master.model.why import Reason, ReasonCode
from support.inline_planner import InlinePlanner
from support.lent_servers import Server, asked, flags, lend, lent, saves, server
from support.master_harness import ROOT, Master, config_of
from support.running import running
from support.sim_agent import SimAgent

IDLE = Reading(0, 0, 0)
GIB = 1024**3


def test_a_server_takes_jobs_only_once_its_devices_say_that_it_is_empty(master: Master) -> None:
    agent = server(master)
    assert not master.node("inf01").open
    job_id = master.submit(4).job_id
    assert master.job(job_id).live_attempt is None
    assert ReasonCode.NODES_CLOSED in [one.code for one in master.why(job_id).reasons]
    assert "not lent" in str(master.why(job_id).reasons)
    assert lend(master, "inf01") == ("inf01",)
    assert flags(master) == {"lending"}
    assert master.job(job_id).live_attempt is None
    agent.answer()
    assert flags(master) == {"loaned"}
    assert master.job(job_id).live_attempt == 1
    assert "server_lent" in master.words()


def test_devices_are_believed_and_not_the_agent_s_book(master: Master) -> None:
    """A process of the inference side is still on GPU 2, of which the agent says nothing; GPU 3 is
    silent.
    """
    agent = server(master)
    agent.held = (IDLE, Reading(1, 10 * 1024**2, 0), Reading(2, 8 * GIB, 1))
    lend(master, "inf01")
    agent.answer()
    assert flags(master) == {"lending"}
    told = master.loop.published.server_words(NodeId("inf01"))
    assert told == "GPU 2: 8.0 GiB in use, processes: 1; GPU 3 does not say"
    for _ in range(3):
        master.tick(1.0)
        agent.answer()
    assert master.words().count("server_not_empty") == 1, "once, not every second"
    agent.held = None
    master.tick(1.0)
    agent.answer()
    assert flags(master) == {"loaned"}
    assert not master.loop.published.server_words(NodeId("inf01"))


def test_memory_without_a_process_is_in_use_as_well(master: Master) -> None:
    agent = server(master)
    agent.held = tuple(Reading(gpu, 500 * 1024**2, 0) for gpu in range(4))
    lend(master, "inf01")
    agent.answer()
    assert flags(master) == {"lending"}


def test_an_answer_to_another_question_proves_nothing(master: Master) -> None:
    agent = server(master)
    lend(master, "inf01")
    assert agent.session_id is not None
    readings = tuple(Reading(gpu, 0, 0) for gpu in range(4))
    for number, session_id in ((99, agent.session_id), (1, agent.session_id + 1)):
        master.turn(
            TakeLook(node_id=agent.node_id, session_id=session_id, number=number, readings=readings)
        )
        assert flags(master) == {"lending"}
    agent.hello()
    master.turn(
        TakeLook(node_id=agent.node_id, session_id=agent.session_id, number=1, readings=readings)
    )
    assert flags(master) == {"lending"}, "asked before it said hello again"
    master.tick(1.0)
    agent.answer()
    assert flags(master) == {"loaned"}


def test_asked_back_it_is_closed_at_once_and_gone_when_it_is_proven_empty(master: Master) -> None:
    (agent,) = lent(master, "inf01")
    key = running(master, agent)
    done = master.ask(asked("inf01"))
    assert isinstance(done, Reclaimed)
    (hit,) = done.hits
    assert (hit.job_id, hit.action, hit.gpus) == (key.job_id, "preempt", 4)
    assert (done.node_ids, done.proven, done.promised_s) == (("inf01",), True, 300.0)
    assert flags(master) == {"loaned", "reclaimed"}
    assert master.attempt(key.job_id).stop_cause == "reclaim"
    (told,) = [event for event in master.events(key.job_id) if event.kind == "job_reclaimed"]
    assert told.cause.startswith(
        "reclaimed for the inference side (inf01): it saves and queues again"
    )
    waiting = master.submit(1).job_id
    assert master.job(waiting).live_attempt is None
    master.turn(
        SetNodeFlags(
            caller=ROOT,
            request_id="u",
            node_id=NodeId("inf01"),
            set_flags=frozenset(),
            clear_flags=frozenset([NodeFlag.CORDONED]),
            reason="",
        )
    )
    assert master.job(waiting).live_attempt is None, "no uncordon gives it back to training"
    master.tick(1.0)
    agent.answer()
    assert flags(master) == {"loaned", "reclaimed"}, "somebody is there"
    saves(agent, key)
    agent.held = (Reading(0, 9 * GIB, 0),)
    master.tick(1.0)
    agent.answer()
    assert flags(master) == {"loaned", "reclaimed"}, "its memory is not free"
    agent.held = None
    master.tick(1.0)
    agent.answer()
    assert flags(master) == set()
    assert master.words()[-1] == "server_returned"
    assert master.job(waiting).live_attempt is None


def test_everything_stands_after_a_restart_of_the_master(master: Master) -> None:
    (agent,) = lent(master, "inf01")
    other = server(master, "inf02")
    lend(master, "inf02")
    key = running(master, agent)
    master.ask(asked("inf01"))
    for _ in range(2):
        master.restart()
        assert (flags(master, "inf01"), flags(master, "inf02")) == (
            {"loaned", "reclaimed"},
            {"lending"},
        )
    agent.hello()
    other.hello()
    agent.report()
    master.tick(1.0)
    other.answer()
    assert flags(master, "inf02") == {"loaned"}
    saves(agent, key)
    master.restart()
    agent.hello()
    master.tick(1.0)
    agent.answer()
    assert flags(master, "inf01") == set()


def test_the_fewest_jobs_are_preempted(master: Master) -> None:
    """One job is on two servers, one on the third: two servers cost one job, if they are the right
    ones.
    """
    first, second, third = lent(master, "inf01", "inf02", "inf03")
    wide = running(master, *[first, second], gpus=4)
    narrow = running(master, third)
    answer = master.ask(asked(count=2))
    assert isinstance(answer, ToChoose), "the least is looked for outside of the loop"
    choice = answer.choose(answer.demand)
    done = master.ask(asked(count=2, found=Found(choice, answer.basis)))
    assert (set(done.node_ids), done.proven) == ({"inf01", "inf02"}, True)
    assert master.attempt(wide.job_id).stop_cause == "reclaim"
    assert master.attempt(narrow.job_id).stop_cause is None


def test_a_choice_from_what_was_is_none(master: Master) -> None:
    agents = lent(master, "inf01", "inf02", "inf03")
    running(master, *agents[:2])
    keys = [running(master, agents[2], gpus=2), running(master, agents[2], gpus=2)]
    answer = master.ask(asked(count=1))
    assert isinstance(answer, ToChoose)
    found = Found(answer.choose(answer.demand), answer.basis)
    master.cancel(keys[0].job_id, kill=True)
    saves(agents[2], keys[0])
    again = master.ask(asked(count=1, found=found))
    assert isinstance(again, ToChoose)
    hurried = master.ask(asked(count=1, found=found, hurry=True))
    assert isinstance(hurried, Reclaimed)
    assert len(hurried.node_ids) == 1


def test_a_plan_changes_nothing_and_its_token_does_what_it_told(master: Master) -> None:
    (agent,) = lent(master, "inf01")
    key = running(master, agent)
    plan = master.ask(asked("inf01", plan_only=True, request_id=""))
    assert (flags(master), len(plan.token)) == ({"loaned"}, 12)
    master.clock.advance(30.0)
    done = master.ask(asked(token=plan.token))
    assert done.node_ids == plan.node_ids
    assert [hit.job_id for hit in done.hits] == [hit.job_id for hit in plan.hits] == [key.job_id]
    assert master.attempt(key.job_id).stop_cause == "reclaim"
    with pytest.raises(Conflict):
        master.ask(asked(token=plan.token))


def test_who_has_lost_its_work_before_and_never_saved_is_told_to_lose_it_again(
    master: Master,
) -> None:
    (agent,) = lent(master, "inf01")
    key = running(master, agent, rules=RunRules(saves=False))
    master.clock.advance(50.0)
    first = master.ask(asked("inf01", plan_only=True, request_id=""))
    assert first.hits[0].lost_s == 60.0, "nobody knows yet: to save and to resume"
    master.ask(asked("inf01"))
    agent.obey()
    agent.exit(key, 1)
    agent.report()
    assert master.job(key.job_id).lost_gpu_s == 200.0
    lend(master, "inf01", request_id="again")
    master.tick(1.0)
    agent.answer()
    again = AttemptKey(key.job_id, 2)
    agent.obey()
    agent.start(again)
    agent.report()
    master.clock.advance(500.0)
    second = master.ask(asked("inf01", plan_only=True, request_id=""))
    assert second.hits[0].lost_s == 500.0


def test_a_plan_of_a_cluster_that_has_changed_is_refused(master: Master) -> None:
    (agent,) = lent(master, "inf01")
    running(master, agent, gpus=1)
    plan = master.ask(asked("inf01", plan_only=True, request_id=""))
    came = running(master, agent, gpus=1)
    with pytest.raises(Conflict, match=f"jobs {came.job_id} have come"):
        master.ask(asked(token=plan.token))
    assert flags(master) == {"loaned"}
    master.restart()
    with pytest.raises(NotFound):
        master.ask(asked(token=plan.token))


def test_a_token_with_what_was_asked_outlives_the_master(master: Master) -> None:
    agents = lent(master, "inf01", "inf02")
    key = running(master, agents[0])
    told = {"node_ids": (NodeId("inf01"),), "within_s": 600.0}
    token = master.ask(asked(**told, plan_only=True, request_id="")).token
    master.restart()
    for agent in agents:
        agent.hello()
    with pytest.raises(Conflict):
        master.ask(asked("inf02", within_s=600.0, token=token))
    with pytest.raises(Conflict):
        master.ask(asked("inf01", token=token))
    assert flags(master) == {"loaned"}
    assert master.ask(asked(**told, plan_only=True, request_id="")).token == token
    with pytest.raises(Conflict, match="something else"):
        master.ask(asked("inf02", within_s=600.0, token=token))
    master.restart()
    for agent in agents:
        agent.hello()
    done = master.ask(asked(**told, token=token))
    assert [hit.job_id for hit in done.hits] == [key.job_id]
    assert flags(master) == {"loaned", "reclaimed"}


def test_what_cannot_be_promised_is_refused_and_force_ends_jobs_then(master: Master) -> None:
    (agent,) = lent(master, "inf01")
    key = running(master, agent)
    with pytest.raises(
        IllegalTransition, match=r"within 1min cannot be promised: jobs 1 .*5min|1m"
    ):
        master.ask(asked("inf01", within_s=60.0))
    assert flags(master) == {"loaned"}
    plan = master.ask(asked("inf01", within_s=60.0, plan_only=True, request_id=""))
    assert (plan.too_long, plan.promised_s) == (True, 300.0)
    with pytest.raises(IllegalTransition):
        master.ask(asked(token=plan.token))
    done = master.ask(asked("inf01", within_s=60.0, force=True))
    assert (done.hits[0].killed, done.promised_s, done.too_long) == (True, 60.0, False)
    assert master.attempt(key.job_id).grace_s == 60.0


def test_force_also_hastens_who_leaves_already(master: Master) -> None:
    (agent,) = lent(master, "inf01")
    key = running(master, agent)
    master.ask(asked("inf01"))
    assert master.attempt(key.job_id).grace_s == 300.0
    again = master.ask(asked("inf01"))
    assert [hit.action for hit in again.hits] == ["leaving"], "asked twice: it leaves already"
    assert master.words(key.job_id).count("job_reclaimed") == 1
    master.ask(asked("inf01", within_s=30.0, force=True))
    assert master.attempt(key.job_id).grace_s == 30.0


def test_the_same_request_is_done_once(master: Master) -> None:
    (agent,) = lent(master, "inf01")
    running(master, agent)
    ask = asked("inf01")
    first = master.ask(ask)
    count = len(master.words())
    master.restart()
    agent.hello()
    assert master.ask(ask) == first
    assert master.words()[count:].count("job_reclaimed") == 0
    assert lend(master, "inf01", request_id="l") == lend(master, "inf01", request_id="l")


def test_more_than_is_there_is_refused_and_nothing_is_done(master: Master) -> None:
    lent(master, "inf01")
    with pytest.raises(IllegalTransition, match="2 servers are asked back, and 1 are lent"):
        master.ask(asked(count=2))
    with pytest.raises(IllegalTransition, match="1 servers are to be lent, and 0 could be"):
        lend(master, count=1)
    assert flags(master) == {"loaned"}


def test_the_cluster_s_own_nodes_are_neither_lent_nor_asked_back(
    master: Master, agent: SimAgent
) -> None:
    with pytest.raises(IllegalTransition, match="pool training"):
        lend(master, "gpu01")
    with pytest.raises(IllegalTransition, match="pool training"):
        master.ask(asked("gpu01"))
    with pytest.raises(NotFound):
        master.ask(asked("gone"))


def test_who_runs_on_a_node_that_becomes_a_server_leaves(master: Master, agent: SimAgent) -> None:
    key = running(master, agent)
    again = Server(master, agent.node_id, ranks=agent.ranks)
    again.hello()
    master.tick(1.0)
    assert flags(master, "gpu01") == {"loaned", "reclaimed"}
    assert master.attempt(key.job_id).stop_cause == "reclaim"
    saves(again, key)
    master.tick(1.0)
    again.answer()
    assert flags(master, "gpu01") == set()
    assert master.job(key.job_id).live_attempt is None
    assert not master.node("gpu01").open


def test_what_is_not_lent_yet_is_taken_back_first_and_what_is_away_stays_away(
    master: Master,
) -> None:
    lent(master, "inf01")
    server(master, "inf02")
    lend(master, "inf02")
    assert master.ask(asked(count=1)).node_ids == ("inf02",)
    assert (flags(master, "inf01"), flags(master, "inf02")) == ({"loaned"}, set())
    assert master.ask(asked("inf02")).node_ids == ()


def test_who_is_asked_back_may_be_lent_again(master: Master) -> None:
    (agent,) = lent(master, "inf01")
    key = running(master, agent)
    master.ask(asked("inf01"))
    lend(master, "inf01")
    assert flags(master) == {"loaned"}
    saves(agent, key)
    assert master.job(key.job_id).live_attempt == 2, "it goes on there"


def test_a_vanished_server_stays_asked_back_until_it_can_be_proven_empty(master: Master) -> None:
    (agent,) = lent(master, "inf01")
    key = running(master, agent)
    agent.cut()
    for _ in range(4):
        master.tick(15.0)
    assert master.attempt(key.job_id).state == "unknown"
    done = master.ask(asked("inf01"))
    assert [hit.action for hit in done.hits] == ["preempt"]
    assert master.loop.published.server_words(NodeId("inf01")).endswith("has not left")
    master.ask(FenceNode(caller=ROOT, request_id="f", node_id=NodeId("inf01"), reason="it is off"))
    master.tick(1.0)
    assert master.loop.published.server_words(NodeId("inf01")) == "its agent is silent"
    assert flags(master) == {"loaned", "reclaimed"}
    with pytest.raises(IllegalTransition):
        master.ask(asked(count=1))
    agent.boot_id = "boot-2"
    agent.ranks.clear()
    agent.hello()
    master.tick(1.0)
    agent.answer()
    assert flags(master) == set()


def test_no_force_promises_that_a_silent_server_is_empty(master: Master) -> None:
    """Nobody there hears of it before the line is back, or its jobs have held out: asked once, and
    once more.
    """
    (agent,) = lent(master, "inf01")
    key = running(master, agent)
    agent.cut()
    for _ in range(4):
        master.tick(15.0)
    held_s = master.attempt(key.job_id).lease.hold_s
    for action in ("preempt", "leaving"):
        done = master.ask(asked("inf01", within_s=5.0, force=True))
        (hit,) = done.hits
        assert (hit.action, hit.killed, done.too_long) == (action, True, True)
        assert done.promised_s == hit.grace_s > held_s


def test_one_that_never_returns_is_forgotten_and_comes_again_as_a_new_one(master: Master) -> None:
    agent, other = lent(master, "inf01", "inf02")
    key = running(master, agent)
    master.ask(asked("inf01"))
    agent.cut()
    for _ in range(4):
        master.tick(15.0)
        other.heartbeat()
    name = NodeId("inf01")
    master.ask(FenceNode(caller=ROOT, request_id="f", node_id=name, reason="it burnt"))
    master.tick(1.0)
    master.ask(ForgetNode(caller=ROOT, request_id="g", node_id=name))
    assert name not in master.state.loans.words
    with pytest.raises(IllegalTransition, match="2 servers are asked back, and 1 are lent"):
        master.ask(asked(count=2))
    with pytest.raises(NotFound):
        master.ask(asked("inf01"))
    assert master.attempt(key.job_id).lease.allocation.node_ids == ("inf02",), "it goes on there"
    server(master, "inf01")
    assert flags(master) == set(), "nobody lends it yet"


def test_gpus_that_its_agent_cannot_give_back_keep_it_whatever_the_devices_say(
    master: Master,
) -> None:
    (agent,) = lent(master, "inf01")
    key = running(master, agent)
    master.ask(asked("inf01"))
    agent.obey()
    agent.save(key, 1)
    agent.exit(key, 99)
    agent.report()
    master.tick(1.0)
    agent.obey()
    assert agent.looks, "it has been asked"
    agent.hold_gpus(key, "gpu_not_released: 4711")
    agent.report()
    agent.answer()
    assert flags(master) == {"loaned", "reclaimed", "cleaning"}
    master.tick(1.0)
    assert "gpu_not_released" in master.loop.published.server_words(NodeId("inf01"))
    assert not agent.looks


def test_one_that_was_silent_when_it_was_asked_back_is_told_when_it_returns(master: Master) -> None:
    (agent,) = lent(master, "inf01")
    key = running(master, agent)
    agent.cut()
    for _ in range(4):
        master.tick(15.0)
    master.ask(asked("inf01"))
    master.restart()
    agent.hello()
    master.tick(1.0)
    assert master.attempt(key.job_id).stop_cause == "reclaim"
    saves(agent, key)
    master.tick(1.0)
    agent.answer()
    assert flags(master) == set()
    assert master.job(JobId(key.job_id)).state == "queued"


def test_deadlines_are_promised_on_own_nodes_alone_and_no_reclaim_touches_them(
    masters: Callable[..., Master],
) -> None:
    """Four GPUs at home, four lent: who comes second is promised nothing before the first is done,
    and runs at home.
    """
    master = masters(config_of("dlq", be_floor="0"))
    planner = InlinePlanner()
    master.state.placement.offloaded.planner = planner
    own = SimAgent(master, NodeId("gpu01"))
    own.hello()
    lent(master, "inf01")

    def due(after_s: float) -> JobId:
        steps = (AskedDeadline(100.0, after_s=after_s),)
        job_id = master.submit(4, run_estimate_s=3000.0, deadlines=steps).job_id
        while planner.asked:
            master.turn(PlanMade(planner.answer()))
        return job_id

    first, second = due(6000.0), due(6100.0)
    assert master.job(first).promised == 0
    assert master.job(second).promised is None, "the lent GPUs would do, and may be gone by then"
    assert master.attempt(first).lease.allocation.node_ids == ("gpu01",)
    done = master.ask(asked("inf01"))
    assert first not in [hit.job_id for hit in done.hits]
    assert master.job(first).promised == 0


def test_an_agent_that_changes_sides_is_not_lent_any_more(master: Master) -> None:
    (agent,) = lent(master, "inf01")
    own = SimAgent(master, NodeId("inf01"), boot_id="boot-1")
    agent.cut()
    own.hello()
    assert flags(master) == set()
    assert master.node("inf01").open


def test_elastic_jobs_give_up_what_they_have_there_and_nobody_is_preempted(
    masters: Callable[..., Master],
) -> None:
    """A job that runs on 4 to 8 GPUs goes on with the four that it has at home."""
    master = masters(config_of("aryl"))
    own = SimAgent(master, NodeId("gpu01"))
    own.hello()
    (guest,) = lent(master, "inf01")
    request = Request(gpus=4, sizes=(4, 8))
    job_id = master.submit(request=request, run_estimate_s=10_000.0).job_id
    key = AttemptKey(job_id, 1)
    for agent in (own, guest):
        agent.obey()
    assert master.attempt(job_id).lease.allocation.node_ids == ("inf01", "gpu01")
    for agent in (own, guest):
        agent.ready(key, 20_000)
        agent.report()
        agent.obey()
        agent.start(key)
        agent.report()
    done = master.ask(asked("inf01"))
    assert [(hit.action, hit.gpus, hit.kept_gpus) for hit in done.hits] == [("shrink", 8, 4)]
    for agent in (own, guest):
        saves(agent, key)
    assert master.attempt(job_id).lease.allocation.node_ids == ("gpu01",)
    assert master.job(job_id).live_attempt == 2
    guest.looks.clear()
    master.tick(1.0)
    guest.answer()
    assert flags(master) == set()


def test_a_plan_that_is_not_legal_is_refused_and_changes_nothing(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    (agent,) = lent(master, "inf01")
    running(master, agent)
    twice = Plan((Reclaim(NodeId("inf01"), Reason(ReasonCode.ASKED_BACK)),) * 2)
    monkeypatch.setattr(reclaims, "clipped", lambda _plan, _within_s: twice)
    with pytest.raises(Conflict, match="node inf01 is not lent"):
        master.ask(asked("inf01", within_s=600.0, force=True, request_id="bug"))
    assert flags(master) == {"loaned"}
    monkeypatch.undo()
    master.ask(asked("inf01", within_s=600.0, force=True, request_id="bug"))
    assert flags(master) == {"loaned", "reclaimed"}

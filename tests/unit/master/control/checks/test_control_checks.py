"""Checks of nodes: when they run, what their results do, and that they are in nobody's way."""

from __future__ import annotations

import json
from collections.abc import Callable, Set
from dataclasses import replace
from functools import partial

import pytest

from dlq_common.daemon.config import Seconds
from dlq_common.errors import (
    ConfigError,
    Conflict,
    IllegalTransition,
    InvalidRequest,
    Unsatisfiable,
)
from dlq_common.start_causes import StartCause
from dlq_master.checks import making_way
from dlq_master.checks.watching import room_of
from dlq_master.control.activity_config import CheckConfig, ChecksConfig
from dlq_master.control.config import MasterConfig, QueueConfig
from dlq_master.control.loop.turn import Turn
from dlq_master.control.stimuli import AskedArray, AskedMember, Caller, CheckNodes, SubmitGroup
from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.event import JournalEvent
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.eligible import Block, MemberEnds
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.nodes.node import NodeFlag, NodeState
from dlq_master.model.resources import Request
from dlq_master.model.transitions import StopCause
from dlq_master.rpc.specs.checks import submission
from support.master_harness import ROOT, Master, config_of
from support.sim_agent import SimAgent
from unit.master.control.nodes.test_control_gpu_health import set_flags

QUARANTINED = frozenset({NodeFlag.QUARANTINED})
HOUR = 3600.0


def checking(*kinds: str, when: tuple[str, ...] = (), **more: object) -> MasterConfig:
    """A master that makes these checks in the account of root."""
    rules = {kind: CheckConfig(50.0, when) for kind in kinds}
    checks = replace(ChecksConfig(user="root", kinds=rules), **more)  # type: ignore[arg-type]
    return replace(config_of(), checks=checks)


class Site:
    """A master with checks, and some nodes of two GPUs."""

    def __init__(self, master: Master, count: int = 4) -> None:
        self.master = master
        self.equip()
        self.agents = {
            name: SimAgent(master, NodeId(name), gpus=2, gpu_type="h100")
            for name in [f"n{number}" for number in range(count)]
        }
        for agent in self.agents.values():
            agent.hello()

    def equip(self) -> None:
        """As serving does at every start."""
        make = partial(submission, self.master.config.checks)
        self.master.state.nodes.checks.room = room_of(make)

    def ask(self, kind: str, *nodes: str, request_id: str = "") -> Job:
        """An operator asks for a check; it runs on its nodes then."""
        names = tuple(map(NodeId, nodes))
        job: Job = self.master.ask(
            CheckNodes(caller=ROOT, request_id=request_id, kind=kind, node_ids=names)
        )
        self.run(job)
        return job

    def run(self, job: Job) -> None:
        key = AttemptKey(job.job_id, 1)
        for status in self.master.attempt(job.job_id).ranks:
            self.agents[status.node_id].obey()
        if len(self.master.attempt(job.job_id).ranks) > 1:
            for status in self.master.attempt(job.job_id).ranks:
                self.agents[status.node_id].ready(key, 1)
                self.agents[status.node_id].report()
        for status in self.master.attempt(job.job_id).ranks:
            self.agents[status.node_id].obey()
        for status in self.master.attempt(job.job_id).ranks:
            self.agents[status.node_id].start(key)
            self.agents[status.node_id].report()

    def end(self, job: Job, passed: bool | None, figure: float = 12.5, **more: str) -> None:
        """All its ranks print a result and end."""
        key = AttemptKey(job.job_id, 1)
        told = {"check": job.check, "figure": figure, "unit": "GB/s", "on": "numpy", **more}
        line = json.dumps({**told, "limit": 50.0, "passed": passed})
        for status in self.master.attempt(job.job_id).ranks:
            agent = self.agents[status.node_id]
            agent.exit(key, {True: 0, False: 1, None: 3}[passed], "exited", "noise", line)
            agent.report()

    def later(self, seconds: int, *heard: str) -> None:
        """So much later; these nodes are heard meanwhile, or all are."""
        for _ in range(0, seconds, 10):
            for name in heard or self.agents:
                self.agents[name].heartbeat()
            self.master.tick(10.0)

    def flags(self, name: str = "n0") -> frozenset[NodeFlag]:
        return self.master.node(name).flags

    def living(self) -> list[Job]:
        jobs = self.master.state.cluster.jobs.values()
        return [job for job in jobs if job.check and not job.ended]

    def results(self) -> list[JournalEvent]:
        return [event for event in self.master.events() if event.kind == "node_checked"]


@pytest.fixture
def site(masters: Callable[..., Master]) -> Site:
    return Site(masters(checking("matrix")))


def test_a_check_takes_the_whole_node_as_a_job_of_the_configured_user(site: Site) -> None:
    job = site.ask("matrix", "n0")
    assert (job.user, job.check, job.request.gpus) == ("root", "matrix", 2)
    assert job.request.among == ("n0",)
    assert site.agents["n0"].ranks[AttemptKey(job.job_id, 1)].launch.check == "matrix"
    site.end(job, passed=True)
    assert site.master.job(job.job_id).state is JobState.COMPLETED
    assert site.flags() == frozenset()
    (event,) = site.results()
    assert (event.node_id, event.data["result"], event.data["figure"]) == ("n0", "passed", 12.5)


def test_a_node_that_fails_is_quarantined_with_the_evidence_and_keeps_its_jobs(site: Site) -> None:
    job = site.ask("matrix", "n0")
    site.end(job, passed=False)
    note = site.master.node("n0").note(NodeFlag.QUARANTINED)
    assert note is not None
    words = f"check matrix: 12.5 GB/s, limit 50 GB/s (job {job.job_id})"
    assert (note.reason, note.by) == (words, "master")
    others = [site.master.submit(2).job_id for _ in range(4)]
    started = [one for one in others if site.master.job(one).live_attempt]
    nodes = {site.master.attempt(one).ranks[0].node_id for one in started}
    assert nodes == {"n1", "n2", "n3"}


def test_a_passed_check_of_the_same_kind_opens_the_node_again(site: Site) -> None:
    site.end(site.ask("matrix", "n0"), passed=False)
    site.end(site.ask("disk", "n0"), passed=True)
    assert site.flags() == QUARANTINED
    site.end(site.ask("matrix", "n0"), passed=True)
    assert site.flags() == frozenset()
    assert "node_flag_cleared" in site.master.words()


def test_a_quarantine_by_people_is_ended_by_no_check(site: Site) -> None:
    set_flags(site.master, NodeFlag.QUARANTINED, on=True, node="n0")
    site.end(site.ask("matrix", "n0"), passed=True)
    assert site.flags() == QUARANTINED
    set_flags(site.master, NodeFlag.QUARANTINED, on=False, node="n0")
    assert site.flags() == frozenset()


def test_a_node_closed_for_failed_jobs_is_open_once_all_its_checks_have_passed(
    masters: Callable[..., Master],
) -> None:
    site = Site(masters(checking("matrix", "disk", "all_reduce")))
    for number, user in enumerate(("alice", "bob", "alice")):
        here = Request(gpus=1, among=(NodeId("n0"),))
        whose = Caller(user, "user")
        failed = site.master.submit(name=f"job{number}", caller=whose, request=here)
        site.agents["n0"].obey()
        key = AttemptKey(failed.job_id, 1)
        site.agents["n0"].fail_start(key, "no group", cause=StartCause.CGROUP)
        site.agents["n0"].report()
        site.master.cancel(failed.job_id, caller=whose)
    assert site.flags() == QUARANTINED
    site.master.clock.advance(1.0)
    site.end(site.ask("matrix", "n0"), passed=True)
    assert site.flags() == QUARANTINED
    site.end(site.ask("disk", "n0"), passed=True)
    assert site.flags() == frozenset()


def test_a_check_that_tells_nothing_changes_nothing_and_says_why(site: Site) -> None:
    site.end(site.ask("matrix", "n0"), passed=None)
    lost = site.ask("matrix", "n1")
    site.agents["n1"].fail_start(AttemptKey(lost.job_id, 1), "x", cause=StartCause.OTHER_ATTEMPT)
    silent = site.ask("disk", "n2")
    site.agents["n2"].exit(AttemptKey(silent.job_id, 1), 1, "exited", '{"check": "matrix"}')
    site.agents["n2"].report()
    assert site.flags("n0") == site.flags("n2") == frozenset()
    assert [event.data["result"] for event in site.results()] == ["unknown", "unknown"]
    assert "nothing was learned: user_error" in site.results()[-1].cause


@pytest.mark.parametrize(
    "line",
    ["", "[]", "nonsense", '{"check": "matrix", "passed": 0}', '{"passed": false}', "[" * 5000],
)
def test_no_line_that_a_job_can_print_is_more_than_no_result(site: Site, line: str) -> None:
    job = site.ask("matrix", "n0")
    site.agents["n0"].exit(AttemptKey(job.job_id, 1), 1, "exited", line)
    site.agents["n0"].report()
    assert site.flags() == frozenset()
    assert site.results()[-1].data["result"] == "unknown"


def test_a_check_that_hangs_has_failed(site: Site) -> None:
    job = site.ask("matrix", "n0")
    site.later(70)
    site.agents["n0"].obey()
    site.agents["n0"].exit(AttemptKey(job.job_id, 1), 143, "killed")
    site.agents["n0"].report()
    assert site.master.job(job.job_id).state is JobState.TIMED_OUT
    note = site.master.node("n0").note(NodeFlag.QUARANTINED)
    assert note is not None
    assert note.reason == f"check matrix: no result within 60 s: it hangs (job {job.job_id})"


def test_a_busy_node_is_not_checked_and_the_answer_says_so(site: Site) -> None:
    site.master.submit(1)
    busy = next(iter(site.master.state.cluster.attempts.values())).ranks[0].node_id
    with pytest.raises(Conflict, match=f"node {busy} is busy: it was not checked"):
        site.ask("matrix", busy)
    assert site.living() == []


def test_a_check_makes_way_for_a_job_that_waits(site: Site) -> None:
    job = site.ask("matrix", "n0")
    waits = [site.master.submit(2) for _ in range(4)][-1]  # it could have that node
    assert site.master.job(waits.job_id).live_attempt is None
    site.master.tick(1.0)
    agent = site.agents["n0"]
    agent.obey()
    agent.exit(AttemptKey(job.job_id, 1), 143, "killed")
    agent.report()
    assert site.master.job(job.job_id).state is JobState.CANCELLED
    assert site.master.attempt(waits.job_id).ranks[0].node_id == "n0"
    assert site.results()[-1].data["result"] == "unknown"
    with pytest.raises(Conflict, match="busy"):
        site.ask("matrix", "n0")


def test_a_check_goes_on_while_no_job_that_waits_could_have_its_node(site: Site) -> None:
    site.end(site.ask("matrix", "n3"), passed=False)
    site.master.submit(8)  # more than the open nodes have
    open_one, closed = site.ask("matrix", "n0"), site.ask("matrix", "n3")
    site.master.tick(1.0)
    assert {job.job_id for job in site.living()} == {open_one.job_id, closed.job_id}
    assert site.master.attempt(open_one.job_id).stop_cause is None
    site.master.submit(6)  # these three nodes
    site.master.tick(1.0)
    assert site.master.attempt(open_one.job_id).stop_cause is StopCause.CANCEL
    assert site.master.attempt(closed.job_id).stop_cause is None


def test_the_policy_is_asked_only_where_a_check_could_be_in_its_way(
    masters: Callable[..., Master], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asking costs a whole plan, which is long where many jobs wait."""
    asked: list[Turn] = []
    wanted = making_way.wanted

    def counted(turn: Turn) -> Set[NodeId]:
        asked.append(turn)
        return wanted(turn)

    monkeypatch.setattr(making_way, "wanted", counted)
    site = Site(masters(checking("matrix", when=("idle",))), 1)
    site.later(10)
    assert asked  # a check is due
    (job,) = site.living()
    site.run(job)
    site.end(job, passed=True)
    asked.clear()
    site.later(60)
    assert asked == []


def test_no_more_than_a_share_of_the_nodes_is_closed(site: Site) -> None:
    site.end(site.ask("matrix", "n0"), passed=False)
    site.end(site.ask("matrix", "n1"), passed=False)
    assert (site.flags("n0"), site.flags("n1")) == (QUARANTINED, frozenset())
    (told,) = [event for event in site.master.events() if event.kind == "node_not_quarantined"]
    assert told.node_id == "n1"


def test_an_all_reduce_blames_a_node_only_with_a_second_partner(site: Site) -> None:
    site.end(site.ask("all_reduce", "n0", "n1"), passed=False)
    assert site.flags("n0") == site.flags("n1") == frozenset()
    site.end(site.ask("all_reduce", "n1", "n2"), passed=True)
    site.end(site.ask("all_reduce", "n0", "n2"), passed=False)
    assert (site.flags("n0"), site.flags("n1"), site.flags("n2")) == (
        QUARANTINED,
        frozenset(),
        frozenset(),
    )


def test_an_all_reduce_of_gpus_closes_a_node_with_what_nccl_has_met(site: Site) -> None:
    words = "all-reduce 3 over NCCL did not end within 30 s: it hangs"
    for partner in ("n1", "n2"):
        job = site.ask("all_reduce", "n0", partner)
        key, told = AttemptKey(job.job_id, 1), {"check": "all_reduce", "limit": 40.0}
        lost = json.dumps({**told, "passed": None, "why": "the other node has left"})
        site.agents["n0"].exit(
            key, 1, "exited", json.dumps({**told, "passed": False, "why": words})
        )
        site.agents[partner].exit(key, 3, "exited", lost)
        for name in ("n0", partner):
            site.agents[name].report()
    note = site.master.node("n0").note(NodeFlag.QUARANTINED)
    assert note is not None
    assert note.reason.startswith(f"check all_reduce: {words} (job ")
    assert (site.flags("n1"), site.flags("n2")) == (frozenset(), frozenset())


def test_the_word_of_a_check_is_part_of_the_evidence_and_of_no_result(site: Site) -> None:
    job = site.ask("memory", "n0")
    site.end(job, passed=False, on="CUDA, 8 GPUs", why="the slowest is GPU 3")
    note = site.master.node("n0").note(NodeFlag.QUARANTINED)
    assert note is not None
    assert note.reason == (
        f"check memory: 12.5 GB/s, limit 50 GB/s; the slowest is GPU 3 (job {job.job_id})"
    )
    instead = "NCCL not found, gloo over the host network used"
    site.end(site.ask("all_reduce", "n1", "n2"), passed=None, why=instead)
    last = site.results()[-1]
    assert last.cause == f"check all_reduce unknown: nothing was learned: {instead}"
    assert (last.data["result"], last.data["figure"]) == ("unknown", 12.5)


def test_what_cannot_be_checked_is_refused(site: Site, masters: Callable[..., Master]) -> None:
    with pytest.raises(InvalidRequest, match=r"no check 'matrx'.*matrix"):
        site.ask("matrx", "n0")
    with pytest.raises(InvalidRequest, match="takes two nodes"):
        site.ask("all_reduce", "n0")
    with pytest.raises(InvalidRequest, match="takes one node"):
        site.ask("disk", "n0", "n1")
    set_flags(site.master, NodeFlag.DRAINING, on=True, node="n0")
    with pytest.raises(Conflict, match="cannot be checked: it is draining"):
        site.ask("disk", "n0")
    plain = masters()
    SimAgent(plain, NodeId("n0")).hello()
    with pytest.raises(IllegalTransition, match="no checks are configured"):
        plain.ask(CheckNodes(caller=ROOT, request_id="", kind="disk", node_ids=(NodeId("n0"),)))


def test_a_repeated_request_begins_no_second_check(site: Site) -> None:
    first = site.ask("matrix", "n0", request_id="r1")
    again: Job = site.master.ask(
        CheckNodes(caller=ROOT, request_id="r1", kind="matrix", node_ids=(NodeId("n0"),))
    )
    assert again.job_id == first.job_id
    assert len(site.living()) == 1


# --- restarts and silence -------------------------------------------------------------------------


def test_a_check_survives_restarts_of_its_master_and_its_agent(site: Site) -> None:
    job = site.ask("matrix", "n0")
    site.master.restart()
    site.equip()
    for agent in site.agents.values():
        agent.hello()
    site.agents["n0"].restart()
    site.agents["n0"].hello()
    assert site.living() == [site.master.job(job.job_id)]
    site.end(job, passed=False)
    assert site.flags() == QUARANTINED
    site.master.restart()
    note = site.master.node("n0").note(NodeFlag.QUARANTINED)
    assert note is not None
    assert note.reason.startswith("check matrix: 12.5 GB/s")


def test_a_result_from_before_a_silence_counts_and_a_lost_node_tells_nothing(site: Site) -> None:
    heard, lost = site.ask("matrix", "n0"), site.ask("matrix", "n1")
    site.agents["n0"].cut()
    site.agents["n1"].cut()
    site.later(60, "n2", "n3")
    assert site.master.node("n0").state is not NodeState.UP
    key = AttemptKey(heard.job_id, 1)
    told = json.dumps({"check": "matrix", "figure": 1.0, "unit": "GB/s", "passed": False})
    site.agents["n0"].exit(key, 1, "exited", told)
    site.agents["n0"].hello()
    assert site.flags("n0") == QUARANTINED
    site.agents["n1"].reboot()
    site.agents["n1"].hello()
    assert site.flags("n1") == frozenset()
    assert site.master.job(lost.job_id).ended
    assert site.results()[-1].data["result"] == "unknown"


# --- by themselves --------------------------------------------------------------------------------


def running(site: Site) -> list[Attempt]:
    """The attempts of jobs that are no checks."""
    cluster = site.master.state.cluster
    return [one for key, one in cluster.attempts.items() if not cluster.jobs[key.job_id].check]


def work(site: Site, name: str) -> None:
    """The job on this node has run, and ends."""
    agent = site.agents[name]
    agent.obey()
    for attempt in running(site):
        if attempt.ranks[0].node_id == name:
            agent.start(attempt.key)
            agent.report()
            agent.exit(attempt.key, 0)
    agent.report()
    agent.obey()


def look(site: Site, seconds: float = 10.0) -> list[Job]:
    """So much later; the checks that run then."""
    site.later(round(seconds))
    return site.living()


def test_idle_nodes_are_checked_one_after_the_other_and_again_after_a_while(
    masters: Callable[..., Master],
) -> None:
    site = Site(masters(checking("matrix", when=("idle",), every=Seconds(HOUR))), 2)
    checked = []
    for _ in range(2):
        (job,) = look(site)
        site.run(job)
        checked.append(job.request.among)
        site.end(job, passed=True, figure=60.0)
    assert checked == [("n0",), ("n1",)]
    assert look(site) == []
    site.later(3600)
    assert [job.request.among for job in look(site)] == [("n0",)]


def test_a_node_is_checked_when_it_joins_and_after_a_drain(
    masters: Callable[..., Master],
) -> None:
    site = Site(masters(checking("matrix", when=("join", "undrain"))), 2)
    assert look(site) == []
    site.agents["n2"] = SimAgent(site.master, NodeId("n2"), gpus=2, gpu_type="h100")
    site.agents["n2"].hello()
    (job,) = look(site)
    assert job.request.among == ("n2",)
    site.run(job)
    site.end(job, passed=True)
    set_flags(site.master, NodeFlag.DRAINING, on=True, node="n1")
    assert look(site) == []
    set_flags(site.master, NodeFlag.DRAINING, on=False, node="n1")
    (job,) = look(site)
    assert job.request.among == ("n1",)
    begun = [event for event in site.master.events() if event.kind == "check_begun"]
    assert [event.data["why"] for event in begun] == ["join", "undrain"]


def test_a_quarantined_node_is_checked_again_and_opens_when_it_is_sound(
    masters: Callable[..., Master],
) -> None:
    site = Site(masters(checking("matrix", when=("join",), retry=Seconds(60.0))))
    look(site)
    site.end(site.ask("matrix", "n0"), passed=False)
    site.master.submit(8)  # it waits, and cannot have that node anyhow
    assert look(site) == []
    (job,) = look(site, 60.0)
    assert job.request.among == ("n0",)
    site.run(job)
    site.end(job, passed=True)
    assert site.flags() == frozenset()


def test_a_check_ends_only_on_nodes_that_jobs_could_have(masters: Callable[..., Master]) -> None:
    site = Site(masters(checking("matrix", "disk")))
    checks = [site.ask("matrix", name) for name in ("n0", "n1", "n2")]
    jobs = [site.master.submit(2).job_id for _ in range(2)]
    assert [site.master.job(one).live_attempt for one in jobs] == [1, None]
    site.master.tick(1.0)
    stopped = [site.master.attempt(one.job_id).stop_cause for one in checks]
    assert stopped.count(StopCause.CANCEL) == 1


def test_idle_nodes_are_checked_while_a_job_waits_that_cannot_start(
    masters: Callable[..., Master],
) -> None:
    site = Site(masters(checking("matrix", when=("idle",))), 2)
    site.master.submit(2)
    waits = site.master.submit(3).job_id
    (job,) = look(site)
    assert site.master.job(waits).live_attempt is None
    free = ({"n0", "n1"} - {one.ranks[0].node_id for one in running(site)}).pop()
    assert job.request.among == (free,)


def test_on_a_busy_cluster_each_node_is_checked_when_it_is_idle_once_after_the_bound(
    masters: Callable[..., Master],
) -> None:
    """The bound is `every`, `overdue` and the job that runs; jobs for whole nodes always wait."""
    times = {"every": Seconds(600.0), "overdue": Seconds(300.0)}
    site = Site(masters(checking("matrix", when=("idle",), **times)))
    for _ in range(180):
        site.master.submit(2)
    last: dict[str, float] = dict.fromkeys(site.agents, 0.0)
    longest_s, now_s, made = 0.0, 0.0, 0
    for _ in range(40):  # jobs of a minute, that end on one node after the other
        for name, agent in site.agents.items():
            site.later(10)
            now_s += 10.0
            work(site, name)
            agent.report()
            for check in [job for job in site.living() if job.request.among == (name,)]:
                site.run(check)
                site.end(check, passed=True, figure=60.0)
                made += 1
                longest_s, last[name] = max(longest_s, now_s - last[name]), now_s
    assert made >= 8
    assert longest_s <= 600.0 + 300.0 + 40.0 + 10.0
    assert site.master.state.cluster.waiting.count


def test_an_overdue_check_makes_way_for_no_job_and_is_asked_for_no_sooner(
    masters: Callable[..., Master],
) -> None:
    site = Site(masters(checking("matrix", when=("idle",), overdue=Seconds(100.0))), 1)
    first, second = site.master.submit(2).job_id, site.master.submit(2).job_id
    site.later(50)
    work(site, "n0")
    assert site.living() == []
    assert site.master.job(second).live_attempt == 1
    third = site.master.submit(2).job_id
    site.later(80)
    work(site, "n0")
    (check,) = site.living()
    site.later(20)
    assert site.master.attempt(check.job_id).stop_cause is None
    site.run(check)
    site.end(check, passed=True, figure=60.0)
    assert site.master.job(third).live_attempt == 1
    assert site.master.job(first).ended


def test_a_check_on_a_silent_node_holds_up_no_other(masters: Callable[..., Master]) -> None:
    site = Site(masters(checking("matrix", when=("idle",))), 3)
    (lost,) = look(site)
    assert lost.request.among == ("n0",)
    site.agents["n0"].cut()
    site.later(60, "n1", "n2")
    assert site.master.node("n0").state is not NodeState.UP
    assert sorted(job.request.among for job in site.living()) == [("n0",), ("n1",)]


def test_without_a_user_no_node_is_checked(masters: Callable[..., Master]) -> None:
    master = masters()
    agent = SimAgent(master, NodeId("n0"))
    agent.hello()
    master.tick(10.0)
    assert not master.state.nodes.checks.looked


def test_a_check_of_what_nodes_share_counts_only_where_another_node_passes(site: Site) -> None:
    site.end(site.ask("checkpoints", "n0"), passed=False)
    assert site.flags("n0") == frozenset()
    site.end(site.ask("checkpoints", "n1"), passed=True)
    site.end(site.ask("checkpoints", "n0"), passed=False)
    assert site.flags("n0") == QUARANTINED


# --- before wide jobs -----------------------------------------------------------------------------


@pytest.fixture
def wide(masters: Callable[..., Master]) -> Site:
    """A site whose jobs of four GPUs wait a minute at most for checks of idle nodes."""
    return Site(masters(checking("matrix", when=("wide",), wide_gpus=4)))


def test_a_wide_job_begins_after_checks_of_all_idle_nodes_and_on_sound_ones(wide: Site) -> None:
    job = wide.master.submit(4, nodes=2)
    assert wide.master.job(job.job_id).live_attempt is None
    wide.master.tick(1.0)
    checks = wide.living()
    assert [one.request.among for one in checks] == [("n0",), ("n1",), ("n2",), ("n3",)]
    for one in checks:
        wide.run(one)
        wide.end(one, passed=one.request.among != ("n1",))
    assert wide.master.job(job.job_id).live_attempt is None
    wide.master.tick(1.0)
    nodes = {status.node_id for status in wide.master.attempt(job.job_id).ranks}
    assert wide.flags("n1") == QUARANTINED
    assert len(nodes - {"n1"}) == 2
    assert wide.master.job(job.job_id).begin_time_s is None
    assert "job_begin_cleared" in wide.master.words(job.job_id)


def test_a_wide_job_waits_no_longer_than_its_bound_for_a_check_that_hangs(wide: Site) -> None:
    job = wide.master.submit(8, nodes=4)
    wide.later(60)
    hung = wide.living()
    assert len(hung) == 4
    wide.later(10)
    for one in hung:
        name = one.request.among[0]
        wide.agents[name].obey()
        for key in list(wide.agents[name].living()):
            wide.agents[name].exit(key, 143, "killed")
        wide.agents[name].report()
    assert len(wide.master.attempt(job.job_id).ranks) == 4
    assert wide.living() == []


def test_nodes_that_passed_of_late_are_not_checked_again_for_the_next_wide_job(wide: Site) -> None:
    wide.master.submit(8, nodes=4)
    wide.master.tick(1.0)
    for one in wide.living():
        wide.run(one)
        wide.end(one, passed=True)
    wide.master.tick(1.0)
    first = next(iter(wide.master.state.cluster.attempts))
    wide.master.cancel(first.job_id)
    for agent in wide.agents.values():
        agent.obey()
        agent.report()
    second = wide.master.submit(8, nodes=4)
    wide.master.tick(1.0)
    assert wide.living() == []
    assert wide.master.job(second.job_id).begin_time_s is None


def test_a_wide_job_waits_for_no_check_while_others_wait_and_narrow_ones_never_do(
    wide: Site,
) -> None:
    narrow = [wide.master.submit(2).job_id for _ in range(5)]
    assert [wide.master.job(one).begin_time_s for one in narrow] == [None] * 5
    job = wide.master.submit(4, nodes=2)
    wide.master.tick(1.0)
    assert wide.living() == []
    assert wide.master.job(job.job_id).begin_time_s is None


def test_after_a_restart_of_the_master_a_wide_job_begins_at_its_bound(wide: Site) -> None:
    job = wide.master.submit(8, nodes=4)
    wide.master.restart()
    wide.equip()
    for agent in wide.agents.values():
        agent.hello()
    wide.later(50)
    assert wide.master.job(job.job_id).live_attempt is None
    wide.later(20)
    assert wide.master.job(job.job_id).live_attempt == 1


def test_a_group_as_wide_as_that_begins_after_checks_and_in_one_turn(wide: Site) -> None:
    asked = wide.master.submission
    members = tuple(
        AskedMember(name, 1, MemberEnds.EACH, asked(gpus, request_id="", name=name))
        for name, gpus in (("a", 4), ("b", 2))
    )
    found = wide.master.ask(SubmitGroup(caller=ROOT, request_id="g", digest="d", members=members))
    assert [wide.master.job(job.job_id).live_attempt for job in found.jobs] == [None, None]
    wide.master.tick(1.0)
    assert len(wide.living()) == 4
    for one in wide.living():
        wide.run(one)
        wide.end(one, passed=True)
    wide.master.tick(1.0)
    assert [wide.master.job(job.job_id).live_attempt for job in found.jobs] == [1, 1]


def test_wide_tasks_of_an_array_begin_after_checks_and_narrow_ones_at_once(wide: Site) -> None:
    tasks = AskedArray((0, 1), 0)
    narrow = wide.master.submit(2, array=tasks).job_id
    assert [wide.master.job(JobId(narrow + one)).begin_time_s for one in range(2)] == [None] * 2
    assert wide.master.job(narrow).live_attempt == 1
    first = wide.master.submit(4, nodes=2, array=tasks).job_id
    two = [JobId(first + one) for one in range(2)]
    assert [wide.master.job(one).blocked for one in two] == [Block.BEGIN_TIME] * 2
    wide.master.tick(1.0)
    for one in wide.living():
        wide.run(one)
        wide.end(one, passed=True)
    wide.master.tick(1.0)
    assert [wide.master.job(one).begin_time_s for one in two] == [None, None]
    assert wide.master.job(two[0]).live_attempt == 1


def test_a_wide_job_does_not_wait_for_a_check_on_a_silent_node(wide: Site) -> None:
    wide.ask("matrix", "n3")
    wide.agents["n3"].cut()
    wide.later(40, "n0", "n1", "n2")
    job = wide.master.submit(4, nodes=2)
    wide.later(10, "n0", "n1", "n2")
    for one in [it for it in wide.living() if it.request.among != ("n3",)]:
        wide.run(one)
        wide.end(one, passed=True)
    wide.later(10, "n0", "n1", "n2")
    assert wide.master.job(job.job_id).live_attempt == 1


def test_a_refused_job_waits_for_no_check(wide: Site) -> None:
    with pytest.raises(Unsatisfiable):
        wide.master.submit(100)
    assert wide.master.state.nodes.checks.wide == {}


def test_limits_of_users_keep_no_node_from_its_check(masters: Callable[..., Master]) -> None:
    config = replace(checking("matrix"), queues=(QueueConfig("default", jobs=1),))
    site = Site(masters(config))
    site.master.submit(2)
    (node,) = site.master.state.cluster.attempts.values()
    idle = next(name for name in site.agents if name != node.ranks[0].node_id)
    assert site.ask("matrix", idle).live_attempt == 1


@pytest.mark.parametrize(("kind", "key"), [("clock", "clock_server"), ("pull", "image")])
def test_a_check_that_lacks_its_setting_is_no_configuration(kind: str, key: str) -> None:
    """It could tell nothing, and a node that jobs have closed would wait for it for ever."""
    with pytest.raises(ConfigError, match=f"checks.{key}"):
        checking(kind).checks.check()

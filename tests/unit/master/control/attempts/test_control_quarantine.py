"""Nodes on which everything fails, jobs that fail everywhere, and telling them apart."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from dlq_common.start_causes import CAUSES, StartCause
from dlq_master.control.config import HealthConfig, MasterConfig
from dlq_master.control.stimuli import Caller
from dlq_master.model.attempts.attempt import AttemptState
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.job import JobState
from dlq_master.model.nodes.node import NodeFlag
from support.extent import spread
from support.master_harness import Master, config_of
from support.sim_agent import SimAgent
from unit.master.control.nodes.test_control_gpu_health import set_flags, tell

BOB = Caller("bob", "user")
QUARANTINED = {NodeFlag.QUARANTINED}


class Site:
    """A master and some nodes of one GPU each, so that a job goes where it is sent."""

    def __init__(self, master: Master, count: int) -> None:
        self.master = master
        self.agents = [SimAgent(master, NodeId(f"n{number}"), gpus=1) for number in range(count)]
        for agent in self.agents:
            agent.hello()

    def place(self, name: str, node: int, user: str = "alice") -> AttemptKey:
        """Let a job of this name run on this node."""
        key = self.assign(name, node, user)
        self.agents[node].start(key)
        self.agents[node].report()
        return key

    def assign(self, name: str, node: int, user: str = "alice") -> AttemptKey:
        """Let a job of this name be placed on this node: all others are cordoned meanwhile."""
        others = [agent.node_id for agent in self.agents if agent is not self.agents[node]]
        shut = [one for one in others if NodeFlag.CORDONED not in self.master.node(one).flags]
        for one in shut:
            set_flags(self.master, NodeFlag.CORDONED, on=True, node=one)
        job_id = self.master.submit(1, name=name, caller=Caller(user, "user")).job_id
        for one in shut:
            set_flags(self.master, NodeFlag.CORDONED, on=False, node=one)
        agent = self.agents[node]
        key = AttemptKey(job_id, 1)
        assert self.master.attempt(job_id).ranks[0].node_id == agent.node_id
        agent.obey()
        return key

    def fail_three(self, node: int) -> list[JobId]:
        """Three different jobs of two users cannot be started there."""
        return [
            self.fail(f"job{number}", node, user=user)
            for number, user in enumerate(("alice", "bob", "alice"))
        ]

    def fail(
        self, name: str, node: int, user: str = "alice", cause: str = StartCause.CGROUP
    ) -> JobId:
        """It cannot be started there, for this cause; nobody tries it any further."""
        self.master.clock.advance(1.0)
        key = self.assign(name, node, user)
        self.agents[node].fail_start(key, cause, cause=cause)
        self.agents[node].report()
        end = self.master.ended(key.job_id, 1)
        assert end.state is AttemptState.START_FAILED
        self.master.cancel(key.job_id, caller=Caller(user, "user"))
        for agent in self.agents:
            agent.obey()
            agent.report()
        return key.job_id

    def exit(self, name: str, node: int, user: str = "alice", code: int = 1) -> JobId:
        """It fails by itself after a second."""
        key = self.place(name, node, user)
        self.master.clock.advance(1.0)
        self.agents[node].exit(key, code)
        self.agents[node].report()
        assert self.master.job(key.job_id).state is JobState.FAILED
        return key.job_id

    def flags(self, node: int) -> frozenset[NodeFlag]:
        return self.master.node(f"n{node}").flags


@pytest.fixture
def site(master: Master) -> Site:
    return Site(master, 4)


def test_three_different_jobs_that_fail_at_once_on_one_node_close_it(site: Site) -> None:
    first = [site.fail("job0", 0), site.fail("job1", 0, user="bob")]
    assert site.flags(0) == frozenset()
    last = site.fail("job2", 0)
    assert site.flags(0) == QUARANTINED
    note = site.master.node("n0").note(NodeFlag.QUARANTINED)
    assert note is not None
    keys = ", ".join(f"{job}.1" for job in [*first, last])
    assert note.reason == f"3 different jobs failed here at once: {keys}"
    assert note.by == "master"


def test_how_programs_end_closes_no_node_whoevers_they_are(site: Site) -> None:
    for number, code in enumerate((1, 7, 127, 126, 139, 137)):
        for user in ("alice", "bob", "carol"):
            site.exit(f"typo{number}", 0, user=user, code=code)
    assert site.flags(0) == frozenset()


@pytest.mark.parametrize("cause", spread(list(StartCause), 8))
def test_a_start_that_failed_speaks_against_its_node_only_by_a_cause_of_nodes(
    site: Site, cause: StartCause
) -> None:
    for number, user in enumerate(("alice", "bob", "carol")):
        site.fail(f"job{number}", 0, user=user, cause=cause)
    assert bool(site.flags(0)) is CAUSES[cause].of_node


@pytest.mark.parametrize(("word", "closes"), [("", True), ("of a later version", False)])
def test_agents_of_before_and_of_later_versions(site: Site, word: str, closes: bool) -> None:
    for number in range(3):
        site.fail(f"job{number}", 0, user="bob" if number else "alice", cause=word)
    assert bool(site.flags(0)) is closes


def test_what_killed_its_own_shim_is_no_sign(site: Site) -> None:
    for number, user in enumerate(("alice", "bob", "alice", "bob")):
        key = site.place(f"job{number}", 0, user)
        site.agents[0].vanish(key)
        site.agents[0].report()
        assert site.master.ended(key.job_id, 1).state is AttemptState.NODE_LOST
        site.master.cancel(key.job_id, caller=Caller(user, "user"))
        for agent in site.agents:
            agent.obey()
            agent.report()
    assert site.flags(0) == frozenset()


@pytest.mark.parametrize(
    ("code", "closes"), [("xid_94", True), ("xid_31", False), ("xid_999", False)]
)
def test_exits_on_a_gpu_that_ails_are_the_nodes_if_no_program_can_have_done_that(
    site: Site, code: str, closes: bool
) -> None:
    tell(site.agents[0], code, gpu=0)
    for number in range(3):
        site.exit(f"job{number}", 0, user="bob" if number else "alice")
    assert bool(site.flags(0)) is closes


def test_nothing_new_is_placed_there_until_an_operator_says_so(site: Site) -> None:
    site.fail_three(0)
    jobs = [site.master.submit(1).job_id for _ in range(4)]
    placed = {site.master.attempt(job).ranks[0].node_id for job in jobs[:3]}
    assert placed == {"n1", "n2", "n3"}
    assert site.master.job(jobs[3]).live_attempt is None
    set_flags(site.master, NodeFlag.QUARANTINED, on=False, node="n0")
    assert site.master.attempt(jobs[3]).ranks[0].node_id == "n0"


def test_after_the_release_counting_begins_anew(site: Site) -> None:
    site.fail_three(0)
    set_flags(site.master, NodeFlag.QUARANTINED, on=False, node="n0")
    site.fail("job9", 0)
    assert site.flags(0) == frozenset()


def test_one_job_that_is_tried_again_and_again_is_one_job(site: Site) -> None:
    for _ in range(5):
        site.fail("train", 0)
    assert site.flags(0) == frozenset()


def test_a_poison_job_that_fails_on_three_nodes_counts_against_none(site: Site) -> None:
    for node in (0, 1, 2):
        site.fail("poison", node)
    for number in range(2):
        site.fail(f"job{number}", 0, user="bob")
    assert site.flags(0) == frozenset(), "two different jobs and a poison one"
    site.fail("job2", 0, user="carol")
    assert site.flags(0) == QUARANTINED


def test_a_users_sweep_with_one_mistake_closes_no_node(site: Site) -> None:
    for number in range(9):
        site.fail(f"sweep-{number}", number % 3)
    assert [site.flags(node) for node in range(3)] == [frozenset()] * 3


def test_users_who_fail_elsewhere_too_count_once_each(site: Site) -> None:
    for node, user in ((1, "alice"), (2, "bob"), (3, "carol")):
        site.fail("elsewhere", node, user=user)
    for number in range(5):
        site.fail(f"sweep{number}", 0)
    assert site.flags(0) == frozenset()
    for user in ("alice", "bob", "carol"):
        site.fail("here", 0, user=user)
    assert site.flags(0) == QUARANTINED


def test_a_node_closed_for_jobs_that_then_fail_elsewhere_is_open_again(site: Site) -> None:
    site.fail_three(0)
    assert site.flags(0) == QUARANTINED
    site.fail("job1", 1, user="bob")
    assert site.flags(0) == frozenset()
    (told,) = [
        event
        for event in site.master.events()
        if event.kind == "node_flag_cleared" and event.actor == "master"
    ]
    assert told.cause == "job1 of bob fails on n1 too"


def test_jobs_that_ran_for_a_while_and_deliberate_ends_are_no_sign(site: Site) -> None:
    tell(site.agents[0], "xid_94", gpu=0)
    for number in range(3):
        key = site.place(f"late{number}", 0, user=f"user{number}")
        site.master.clock.advance(61.0)
        site.agents[0].heartbeat()
        site.agents[0].exit(key, 1)
        site.agents[0].report()
    for number in range(3):
        key = site.place(f"gone{number}", 0, user=f"user{number}")
        site.master.cancel(key.job_id, kill=True, caller=Caller(f"user{number}", "user"))
        site.agents[0].obey()
        site.agents[0].exit(key, code=137, ended_by="killed")
        site.agents[0].report()
    assert site.flags(0) == frozenset()


def test_what_lies_before_the_window_is_forgotten(site: Site) -> None:
    site.fail("job0", 0)
    site.fail("job1", 0, user="bob")
    for _ in range(61):
        site.master.clock.advance(10.0)
        for agent in site.agents:
            agent.heartbeat()
        site.master.tick()
    site.fail("job2", 0)
    assert site.flags(0) == frozenset()


def test_jobs_that_it_could_not_start_are_tried_elsewhere(site: Site) -> None:
    for number in range(3):
        key = site.assign(f"job{number}", 0)
        site.agents[0].fail_start(key, cause=StartCause.SHIM)
        site.agents[0].report()
        assert site.master.attempt(key.job_id).ranks[0].node_id != "n0", "it is tried elsewhere"
    assert site.flags(0) == QUARANTINED


def test_never_more_than_a_share_of_the_cluster_and_it_is_told_once(master: Master) -> None:
    site = Site(master, 4)
    for node in (0, 1, 2):
        for user in ("alice", "bob", "carol"):
            site.fail(f"only-here-{node}-{user}", node, user=f"{user}{node}")
    assert [bool(site.flags(node)) for node in range(4)] == [True, False, False, False]
    told = [event for event in master.events() if event.kind == "node_not_quarantined"]
    assert [event.node_id for event in told] == ["n1"]


def test_the_only_node_is_never_closed(master: Master) -> None:
    site = Site(master, 1)
    for number in range(5):
        site.fail(f"job{number}", 0, user=f"user{number}")
    assert site.flags(0) == frozenset()


def test_it_can_be_switched_off(masters: Callable[[MasterConfig], Master]) -> None:
    site = Site(masters(replace(config_of(), health=HealthConfig(quarantine_jobs=0))), 4)
    for number in range(5):
        site.fail(f"job{number}", 0, user=f"user{number}")
    assert site.flags(0) == frozenset()


def test_a_restart_of_the_master_keeps_the_flag_and_counts_anew(site: Site) -> None:
    site.fail_three(0)
    for number in range(2):
        site.fail(f"job{number}", 1, user=f"bob{number}")
    site.master.restart()
    for agent in site.agents:
        agent.cut()
        agent.hello()
    assert site.flags(0) == QUARANTINED
    site.fail("job2", 1, user="bob")
    assert site.flags(1) == frozenset()


USERS = tuple(f"user{number}" for number in range(20))
MISTAKES = [cause for cause in StartCause if not CAUSES[cause].of_node]


@pytest.mark.parametrize("cause", MISTAKES)
def test_mistakes_of_twenty_users_close_no_node(site: Site, cause: StartCause) -> None:
    for user in USERS:
        site.fail("job", 0, user=user, cause=cause)
    assert site.flags(0) == frozenset()


@pytest.mark.parametrize("code", [1, 2, 126, 127])
def test_exits_within_a_minute_of_twenty_users_close_no_node(site: Site, code: int) -> None:
    for user in USERS:
        site.exit("job", 0, user=user, code=code)
    assert site.flags(0) == frozenset()


def runs_well(site: Site, name: str, node: int, user: str) -> None:
    key = site.place(name, node, user)
    passes_s = float(site.master.config.health.quarantine_fast) + 1.0
    site.master.clock.advance(passes_s)
    site.agents[node].exit(key, 0)
    site.agents[node].report()
    for agent in site.agents:
        agent.heartbeat()


def test_a_node_that_lacks_a_mount_of_the_others_is_closed_for_three_users(site: Site) -> None:
    for user in ("alice", "bob", "carol"):
        runs_well(site, "train", 1, user)
    for user in ("alice", "bob"):
        site.fail("train", 0, user=user, cause=StartCause.USER_FILES)
    assert site.flags(0) == frozenset(), "two may be mistaken, or lie"
    site.fail("train", 0, user="carol", cause=StartCause.USER_FILES)
    assert site.flags(0) == QUARANTINED


def test_one_user_with_many_jobs_cannot_make_a_node_look_as_if_it_lacked_something(
    site: Site,
) -> None:
    for number in range(6):
        runs_well(site, f"job{number}", 1, "alice")
        site.fail(f"job{number}", 0, cause=StartCause.USER_FILES)
    assert site.flags(0) == frozenset()


def test_a_node_on_which_others_run_well_lacks_nothing(site: Site) -> None:
    for user in ("alice", "bob", "carol"):
        runs_well(site, "train", 1, user)
    site.fail("train", 0, user="alice", cause=StartCause.USER_FILES)
    runs_well(site, "other", 0, "dora")
    for user in ("bob", "carol"):
        site.fail("train", 0, user=user, cause=StartCause.USER_FILES)
    assert site.flags(0) == frozenset()


def test_a_mistake_in_a_spec_keeps_a_job_off_no_node(site: Site) -> None:
    key = site.assign("job", 0)
    site.agents[0].fail_start(key, "no such runtime", cause=StartCause.SPEC)
    site.agents[0].report()
    assert site.master.job(key.job_id).failed_nodes == ()
    other = site.assign("other", 1)
    site.agents[1].fail_start(other, "no image", cause=StartCause.IMAGE)
    site.agents[1].report()
    assert site.master.job(other.job_id).failed_nodes == (NodeId("n1"),)


def test_exits_on_a_gpu_that_ails_close_no_node_on_which_another_user_runs_well(
    master: Master,
) -> None:
    site = Site(master, 0)
    site.agents = [SimAgent(master, NodeId(f"n{number}"), gpus=2) for number in range(2)]
    for agent in site.agents:
        agent.hello()
    site.place("long", 0, "carol")
    for _ in range(7):
        master.clock.advance(10.0)
        site.agents[0].heartbeat()
        site.agents[1].heartbeat()
    tell(site.agents[0], "xid_94", gpu=1)
    for number in range(3):
        site.exit(f"job{number}", 0, user="bob" if number else "alice")
    assert site.flags(0) == frozenset()

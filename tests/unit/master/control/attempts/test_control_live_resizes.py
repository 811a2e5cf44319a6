"""Jobs that torchrun resizes while they run: ranks join and leave them, and the attempt goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from dlq_common.daemon.config import Seconds
from dlq_common.errors import IllegalTransition
from dlq_common.live_resize import JOIN_FAILED, JOINING_S, RESTARTS_PER_ATTEMPT
from dlq_master.control.config import JobsConfig, LeaseConfig
from dlq_master.control.stimuli import Stop, UpdateJob
from dlq_master.model.attempts.attempt import AttemptState
from dlq_master.model.attempts.live_resize import PROBATION_S, RESIZES_PER_ATTEMPT, SHUNNED_S
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.job import EndReason, JobState
from dlq_master.model.resources import Request
from support.lent_servers import Server, asked, flags, lend
from support.master_harness import ALICE, Master, config_of
from support.sim_agent import SimAgent

LIVE = Request(gpus=4, nodes=1, sizes=(4, 8, 12), live=True)
PORT = 29_777
CONFIG = replace(
    config_of("dlq", cooldown_s="off", min_run="off"),
    lease=LeaseConfig(
        be_term=Seconds(20.0), slo_term=Seconds(80.0), save_lead=Seconds(2.0), resume=Seconds(2.0)
    ),
    jobs=JobsConfig(retry_backoff=Seconds(0.0), barrier_timeout=Seconds(60.0)),
)


@pytest.fixture
def master(masters: Callable[..., Master]) -> Master:
    return masters(CONFIG)


@pytest.fixture
def nodes(master: Master) -> list[SimAgent]:
    """Three nodes with four GPUs each."""
    agents = [SimAgent(master, NodeId(name)) for name in ("gpu01", "gpu02", "gpu03")]
    for agent in agents:
        agent.hello()
    return agents


class Site:
    """Time passes; what is launched runs, and what is told to leave saves and leaves."""

    def __init__(self, master: Master, nodes: list[SimAgent]) -> None:
        self.master, self.nodes = master, nodes
        self.starts = True
        self.leaves = True

    def until(self, true: Callable[[], bool], most_s: int = 150) -> None:
        for _ in range(most_s // 5):
            if true():
                return
            self.step()
        assert true(), self.master.story()

    def step(self) -> None:
        self.master.clock.advance(5.0)
        for agent in self.nodes:
            agent.heartbeat()
        self.master.tick()
        for agent in self.nodes:
            agent.obey()
            for key, rank in list(agent.ranks.items()):
                if rank.launch.at_barrier:
                    agent.ready(key, PORT + 1)
                if self.starts or not rank.launch.node_rank:
                    rank.ports = rank.ports or ((PORT,) if not rank.launch.node_rank else ())
                    agent.start(key)
                if self.leaves and rank.noticed and rank.alive:
                    agent.save(key, key.number)
                    agent.exit(key, 1)
            agent.report()

    def submit(self, request: Request = LIVE) -> JobId:
        return self.master.submit(request=request).job_id

    def width(self, job_id: JobId) -> int:
        """GPUs that it runs on, all of whose ranks are there; 0: it does not run."""
        job = self.master.job(job_id)
        attempt = self.master.attempt(job_id) if job.live_attempt is not None else None
        if attempt is None or attempt.state is not AttemptState.RUNNING or attempt.resize:
            return 0
        return attempt.lease.allocation.width

    def base_and_other(self) -> tuple[JobId, JobId]:
        """A live job on its base, and another one on the rest."""
        other = self.master.submit(8, nodes=2).job_id
        self.until(lambda: self.width(other) == 8)
        job_id = self.submit()
        self.until(lambda: self.width(job_id) == 4)
        return job_id, other

    def end(self, job_id: JobId) -> None:
        number = self.master.job(job_id).live_attempt
        assert number is not None
        for agent in self.nodes:
            if AttemptKey(job_id, number) in agent.ranks:
                agent.exit(AttemptKey(job_id, number))
                agent.report()

    def grown(self) -> JobId:
        """A live job that has grown from one node to three."""
        job_id, other = self.base_and_other()
        self.end(other)
        self.until(lambda: self.width(job_id) == 12)
        return job_id

    def on(self, name: str) -> SimAgent:
        return next(agent for agent in self.nodes if agent.node_id == name)

    def told(self, kind: str) -> list[dict[str, object]]:
        return [{**it.data, "why": it.cause} for it in self.master.events() if it.kind == kind]


@pytest.fixture
def site(master: Master, nodes: list[SimAgent]) -> Site:
    return Site(master, nodes)


def test_it_grows_in_the_same_attempt_by_ranks_that_nobody_had_before(site: Site) -> None:
    job_id = site.grown()
    attempt, job = site.master.attempt(job_id), site.master.job(job_id)
    assert (job.attempts, job.resizes, job.preemptions, attempt.resizes) == (1, 1, 0, 1)
    assert attempt.ranks[0].node_id == attempt.lease.allocation.node_ids[0]
    (resized,) = site.told("job_resized")
    assert (resized["from"], resized["to"], resized["mode"]) == (4, 12, "live")
    assert 0.0 <= float(str(resized["cost_s"])) < 60.0
    key = AttemptKey(job_id, 1)
    base, *joined = [site.on(it).ranks[key].launch for it in attempt.lease.allocation.node_ids]
    assert (base.node_rank, len(base.node_ids)) == (0, 1)
    assert [launch.node_rank for launch in joined] == [1, 2]
    assert {launch.master_port for launch in joined} == {PORT}, "where rank 0 has said that it is"
    assert all(not launch.at_barrier and launch.node_addresses[0] for launch in joined)
    assert all(launch.epoch == base.epoch for launch in joined)


def test_it_shrinks_while_the_others_run_and_nobody_gets_gpus_that_are_not_free(site: Site) -> None:
    job_id = site.grown()
    site.leaves = False
    other = site.master.submit(8, nodes=2).job_id
    site.until(lambda: site.master.attempt(job_id).resize is not None)
    for _ in range(5):
        site.step()
    attempt = site.master.attempt(job_id)
    assert attempt.state is AttemptState.RUNNING
    assert site.master.job(other).live_attempt is None, "who leaves is still there"
    assert attempt.lease.term_end_s > site.master.clock.now_s(), "who stays has another term"
    causes = {
        it.cause for sent in site.master.wires.sent.values() for _, it in sent
        if isinstance(it, Stop) and it.key.job_id == job_id
    }  # fmt: skip
    assert causes == {"resize"}
    site.leaves = True
    site.until(lambda: site.width(other) == 8 and site.width(job_id) == 4)
    job, attempt = site.master.job(job_id), site.master.attempt(job_id)
    assert (job.attempts, job.resizes, job.preemptions) == (1, 2, 0)
    assert attempt.lease.allocation.node_ids == (attempt.ranks[0].node_id,)
    assert [it["to"] for it in site.told("job_resized")] == [12, 4]
    assert not site.master.state.attempts.outbox


def test_its_books_are_those_of_the_gpus_that_it_had(site: Site) -> None:
    job_id = site.grown()
    grew_s = site.master.attempt(job_id).held_since_s
    began_s = site.master.job(job_id).first_start_time_s
    assert began_s is not None
    assert site.master.job(job_id).total_gpu_s == pytest.approx(4 * (grew_s - began_s), abs=0.01)
    site.end(job_id)
    job, now_s = site.master.job(job_id), site.master.clock.now_s()
    assert job.state is JobState.COMPLETED
    expected = 4 * (grew_s - began_s) + 12 * (now_s - grew_s)
    assert job.total_gpu_s == pytest.approx(expected, abs=0.01)
    day = int(now_s // 86_400)
    books = site.master.store.books_of(day - 1, day, now_s)
    held = sum(used.held for used in books.uses.values())
    assert held == pytest.approx(sum(level.used for level in books.pools.values()))
    assert held > job.total_gpu_s, "and what was held before it ran, or by others"


def test_a_rank_that_cannot_start_leaves_the_others_alone(site: Site) -> None:
    job_id, other = site.base_and_other()
    site.starts = False
    site.end(other)
    joins = lambda: len(site.master.attempt(job_id).ranks) == 3  # noqa: E731
    site.until(joins)
    site.step()
    first, second = [it.node_id for it in site.master.attempt(job_id).ranks[1:]]
    key = AttemptKey(job_id, 1)
    site.on(first).start(key)
    site.on(first).report()
    site.on(second).fail_start(key, "no such directory")
    site.on(second).report()
    attempt = site.master.attempt(job_id)
    assert attempt.lease.allocation.width == 8, "the other one has joined"
    assert attempt.state is AttemptState.RUNNING
    assert site.master.job(job_id).resizes == 1


def test_nobody_joins_for_whom_all_have_waited_too_long(site: Site) -> None:
    job_id, other = site.base_and_other()
    site.starts = False
    site.end(other)
    site.until(lambda: bool(site.told("resize_failed")))
    (failed,) = site.told("resize_failed")
    assert "not started after" in str(failed["why"])
    assert site.master.attempt(job_id).lease.allocation.width == 4
    assert site.master.job(job_id).attempts == 1


def test_who_left_before_is_not_told_to_have_failed_now(site: Site) -> None:
    """Two servers were left for another job and are its own again; one of them fails."""
    job_id = site.grown()
    other = site.master.submit(8, nodes=2).job_id
    site.until(lambda: (site.width(job_id), site.width(other)) == (4, 8))
    site.end(other)
    site.until(lambda: site.width(job_id) == 12)
    last = site.master.attempt(job_id).ranks[-1].node_id
    site.on(last).cut()
    site.on(last).reboot()
    site.on(last).hello()
    told = site.told("job_resized")[-1]
    assert (told["from"], told["to"], told["why"]) == (
        12,
        8,
        f"{last}: nobody knows of it any more",
    )


def test_a_node_on_which_nothing_starts_is_not_asked_again_for_a_while(site: Site) -> None:
    job_id, other = site.base_and_other()
    site.starts = False
    site.end(other)
    site.until(lambda: len(site.master.attempt(job_id).ranks) == 3)
    site.step()
    last = site.master.attempt(job_id).ranks[2].node_id
    site.on(last).fail_start(AttemptKey(job_id, 1), "no such directory")
    site.on(last).report()
    site.starts = True
    for _ in range(20):
        site.step()
    assert site.width(job_id) == 8
    site.master.clock.advance(SHUNNED_S)
    site.until(lambda: site.width(job_id) == 12)


def test_who_fails_long_after_it_joined_fails_the_gang(site: Site) -> None:
    job_id = site.grown()
    key, last = AttemptKey(job_id, 1), site.master.attempt(job_id).ranks[2].node_id
    site.master.clock.advance(PROBATION_S + 1.0)
    site.on(last).exit(key, 3)
    site.on(last).report()
    assert site.master.attempt(job_id).stop_cause == "gang_failure"
    site.until(lambda: site.master.job(job_id).ended)
    job = site.master.job(job_id)
    assert (job.state, job.end_reason, job.exit_code) == (
        JobState.FAILED,
        EndReason.USER_ERROR,
        3,
    )


@pytest.mark.parametrize("how", ["given up", "by itself", "killed"])
def test_a_job_that_a_joining_node_fails_goes_on_without_it_and_has_not_failed(
    site: Site, how: str
) -> None:
    """The workers of the others wait for its own, and its torchrun may have closed the
    rendezvous.
    """
    job_id = site.grown()
    key, last = AttemptKey(job_id, 1), site.master.attempt(job_id).ranks[2].node_id
    if how == "given up":
        site.on(last).give_up(key, JOIN_FAILED)
    elif how == "killed":
        site.on(last).crash(key, 9)
    else:
        site.on(last).exit(key, 1)
    site.on(last).report()
    assert site.master.attempt(job_id).stop_cause == "gang_failure"
    site.until(lambda: site.width(job_id) == 8)
    job, first = site.master.job(job_id), site.master.ended(job_id, 1)
    assert (first.end_reason, job.restarts, job.attempts) == (EndReason.JOIN_FAILED, 0, 2)
    assert (job.failed_nodes, job.infra_failures) == ((last,), 1)
    assert last not in site.master.attempt(job_id).lease.allocation.node_ids
    assert EndReason.JOIN_FAILED.value == JOIN_FAILED
    for _ in range(20):
        site.step()
    assert site.width(job_id) == 8


def test_it_has_failed_that_job_too_where_the_others_are_heard_of_first(site: Site) -> None:
    job_id = site.grown()
    key, (first, second, last) = AttemptKey(job_id, 1), site.master.attempt(job_id).ranks
    site.on(last.node_id).exit(key, 1)
    site.master.clock.advance(3.0)
    for status in (first, second, last):
        if status is not last:
            site.on(status.node_id).exit(key, 1)
        site.on(status.node_id).report()
    job = site.master.job(job_id)
    assert (job.state, job.end_reason) == (JobState.QUEUED, EndReason.JOIN_FAILED)
    assert (job.restarts, job.failed_nodes) == (0, (last.node_id,))


def test_a_script_that_fails_everywhere_is_the_users_own(site: Site) -> None:
    job_id = site.grown()
    key = AttemptKey(job_id, 1)
    for status in site.master.attempt(job_id).ranks:  # rank 0 first: it has failed before they came
        site.on(status.node_id).exit(key, 1)
        site.on(status.node_id).report()
        site.master.clock.advance(1.0)
    job = site.master.job(job_id)
    assert (job.state, job.end_reason) == (JobState.FAILED, EndReason.USER_ERROR)


@pytest.mark.parametrize("when", ["joining", "leaving"])
def test_a_master_that_restarts_while_ranks_come_or_go_goes_on_with_it(
    site: Site, when: str
) -> None:
    if when == "joining":
        job_id, other = site.base_and_other()
        site.starts = False
        site.end(other)
        site.until(lambda: len(site.master.attempt(job_id).ranks) == 3)
    else:
        job_id = site.grown()
        site.leaves = False
        other = site.master.submit(8, nodes=2).job_id
        site.until(lambda: site.master.attempt(job_id).resize is not None)
    for agent in site.nodes:
        agent.cut()
    site.master.restart()
    for agent in site.nodes:
        agent.hello()
    site.starts = site.leaves = True
    site.until(lambda: site.width(job_id) == (12 if when == "joining" else 4))
    assert site.master.job(job_id).attempts == 1
    assert len(site.told("job_resized")) == (1 if when == "joining" else 2)


def test_a_node_that_is_lost_while_its_rank_leaves_has_left(site: Site) -> None:
    job_id = site.grown()
    site.leaves = False
    site.master.submit(8, nodes=2)
    site.until(lambda: site.master.attempt(job_id).resize is not None)
    for status in site.master.attempt(job_id).ranks[1:]:
        gone = site.on(status.node_id)
        gone.cut()
        gone.reboot()
        gone.hello()
    site.until(lambda: site.width(job_id) == 4, most_s=60)
    assert site.master.job(job_id).attempts == 1


def test_a_silent_node_of_a_joining_rank_makes_it_unknown_and_is_then_done_without(
    site: Site,
) -> None:
    job_id, other = site.base_and_other()
    site.starts = False
    site.end(other)
    site.until(lambda: len(site.master.attempt(job_id).ranks) == 3)
    names = [status.node_id for status in site.master.attempt(job_id).ranks]
    site.on(names[1]).start(AttemptKey(job_id, 1))
    site.on(names[1]).report()
    lost = site.on(names[2])
    lost.cut()
    site.nodes.remove(lost)
    site.until(lambda: site.master.attempt(job_id).state is AttemptState.UNKNOWN)
    lost.reboot()
    lost.hello()
    attempt = site.master.attempt(job_id)
    assert (attempt.state, attempt.lease.allocation.width) == (AttemptState.RUNNING, 8)


def test_a_node_of_a_running_rank_that_is_lost_sends_it_back_to_its_checkpoint(site: Site) -> None:
    job_id = site.grown()
    site.master.clock.advance(61.0)
    for agent in site.nodes:
        agent.heartbeat()
    gone = site.on(site.master.attempt(job_id).ranks[0].node_id)
    gone.cut()
    gone.reboot()
    gone.hello()
    site.until(lambda: site.master.job(job_id).attempts == 2)
    assert site.master.ended(job_id, 1).state is AttemptState.NODE_LOST


def test_a_job_that_ends_while_ranks_join_ends_them_too(site: Site) -> None:
    job_id, other = site.base_and_other()
    site.starts = False
    site.end(other)
    site.until(lambda: len(site.master.attempt(job_id).ranks) == 3)
    base = site.on(site.master.attempt(job_id).ranks[0].node_id)
    base.exit(AttemptKey(job_id, 1))
    base.report()
    site.until(lambda: site.master.job(job_id).state is JobState.COMPLETED, most_s=60)
    assert not site.master.state.cluster.attempts


def test_a_stop_of_all_reaches_who_joins_and_who_leaves(site: Site) -> None:
    job_id, other = site.base_and_other()
    site.starts = False
    site.end(other)
    site.until(lambda: len(site.master.attempt(job_id).ranks) == 3)
    site.master.cancel(job_id)
    site.until(lambda: not site.master.state.cluster.attempts, most_s=60)
    assert site.master.job(job_id).state is JobState.CANCELLED


def test_where_it_cannot_be_done_live_it_saves_and_starts_again(site: Site) -> None:
    """Nobody has told the port of its rendezvous."""
    job_id, other = site.base_and_other()
    attempt = site.master.state.cluster.attempts[AttemptKey(job_id, 1)]
    blank = tuple(status._replace(ports=()) for status in attempt.ranks)
    site.master.state.cluster.put_attempt(attempt._replace(ranks=blank))
    site.end(other)
    site.until(lambda: site.width(job_id) == 12)
    assert site.master.job(job_id).attempts == 2
    assert [it["mode"] for it in site.told("job_resized")] == ["restart"]


def test_its_torchrun_knows_its_sizes_from_its_start(site: Site) -> None:
    job_id = site.grown()
    ask = UpdateJob(
        caller=ALICE, request_id="", job_id=job_id, expected_version=0, sizes=(4, 8, 12, 16)
    )
    with pytest.raises(IllegalTransition, match="from its start"):
        site.master.ask(ask)


def test_torchrun_has_restarts_left_for_failures_after_all_live_resizes() -> None:
    assert RESTARTS_PER_ATTEMPT >= 2 * RESIZES_PER_ATTEMPT


def test_agents_watch_who_joins_for_as_long_as_the_master_lets_it_go() -> None:
    assert JOINING_S == PROBATION_S


def test_after_so_many_live_resizes_one_is_by_a_restart(site: Site) -> None:
    job_id, other = site.base_and_other()
    attempt = site.master.state.cluster.attempts[AttemptKey(job_id, 1)]
    site.master.state.cluster.put_attempt(attempt._replace(resizes=RESIZES_PER_ATTEMPT))
    site.end(other)
    site.until(lambda: site.width(job_id) == 12)
    assert [it["mode"] for it in site.told("job_resized")] == ["restart"]
    assert site.master.attempt(job_id).resizes == 0


@pytest.mark.parametrize("hurry", [False, True])
def test_a_lent_server_that_is_asked_back_is_left_while_the_others_run(
    master: Master, hurry: bool
) -> None:
    own, lent = SimAgent(master, NodeId("gpu01")), Server(master, NodeId("inf01"))
    site = Site(master, [own, lent])
    for agent in site.nodes:
        agent.hello()
    job_id = site.submit(Request(gpus=4, nodes=1, sizes=(4, 8), live=True))
    site.until(lambda: site.width(job_id) == 4)
    lend(master, "inf01")

    def answered(width: int) -> bool:
        lent.answer()
        return site.width(job_id) == width

    site.until(lambda: answered(8))
    more = {"within_s": 20.0, "force": True} if hurry else {}
    master.ask(asked("inf01", **more))
    assert master.attempt(job_id).state is AttemptState.RUNNING
    site.until(lambda: answered(4) and not flags(master))
    assert master.job(job_id).attempts == 1
    assert [it["mode"] for it in site.told("job_resized")] == ["live", "live"]


@pytest.mark.parametrize("old", ["gpu01", "gpu02"])
def test_where_an_agent_knows_nothing_of_it_the_job_is_resized_by_a_restart(
    master: Master, old: str
) -> None:
    nodes = [SimAgent(master, NodeId(name)) for name in ("gpu01", "gpu02")]
    site = Site(master, nodes)
    site.on(old).resizes_live = False
    for agent in nodes:
        agent.hello()
    other = master.submit(4).job_id
    site.until(lambda: site.width(other) == 4)
    job_id = site.submit(Request(gpus=4, nodes=1, sizes=(4, 8), live=True))
    site.until(lambda: site.width(job_id) == 4)
    (base,) = site.master.attempt(job_id).lease.allocation.node_ids
    launch = site.on(base).ranks[AttemptKey(job_id, 1)].launch
    assert launch.fixed is (base == old), "its torchrun is one of a fixed size"
    site.end(other)
    site.until(lambda: site.width(job_id) == 8)
    assert master.job(job_id).attempts == 2
    (resized,) = site.told("job_resized")
    assert resized["mode"] == "restart"
    assert str(resized["why"]).endswith("(not live: an agent of it is too old for that)")
    assert master.attempt(job_id).fixed

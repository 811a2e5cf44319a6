"""A small cluster is told anything in any order; after every decision all of it must be sound."""

from __future__ import annotations

from typing import ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from dlq_master.model.attempts import attempt_steps
from dlq_master.model.attempts.attempt import ACTIVE, Attempt, AttemptState
from dlq_master.model.cluster import drive
from dlq_master.model.estimates.traffic import TrafficProfile
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.jobs import job_steps
from dlq_master.model.jobs.job import HoldKind, JobState
from dlq_master.model.jobs.reward import BEST_EFFORT, Steps, soft, strict
from dlq_master.model.nodes.node import NodeFlag, NodeState
from dlq_master.model.nodes.node_steps import FlagCleared, FlagSet, Heard, Missed, step
from dlq_master.model.plan import Lapse, Reserve, Start
from dlq_master.model.resources import Request
from dlq_master.model.transitions import StopCause
from dlq_master.model.view import View
from dlq_master.model.why import ReasonCode
from dlq_master.policy.pipeline import lineup, plan
from dlq_master.policy.reasons.explain import explain
from dlq_master.policy.reasons.summary import ReasonSummary
from dlq_master.policy.transit.taking import Taking
from support import full_sort, reference_planner
from support.builders import World, a_job, a_node
from support.extent import times
from support.validate import validate

EXPLAINED = 6  # of the latest jobs, after every decision
PROFILES = st.sampled_from(
    [
        None,
        TrafficProfile(0.05),
        TrafficProfile(0.7),
        TrafficProfile(0.7, 0.04),
        TrafficProfile(None, 2.0),
    ]
)
STEPS = st.sampled_from(
    [BEST_EFFORT, BEST_EFFORT, strict(300.0), strict(40.0), soft([(100.0, 100.0), (900.0, 50.0)])]
)
WIDTHS = st.sampled_from([1, 1, 1, 2, 2, 3, 4, 6, 8, 12])


class Story(RuleBasedStateMachine):
    """What may happen to the core, whatever the policy."""

    POLICY: ClassVar[str]
    SETTINGS: ClassVar[dict[str, str]]

    def __init__(self) -> None:
        super().__init__()
        self.next_id = 1

    @initialize(sizes=st.lists(st.sampled_from([2, 4, 4, 4]), min_size=1, max_size=5))
    def a_cluster(self, sizes: list[int]) -> None:
        nodes = [a_node(f"n{i}", gpus) for i, gpus in enumerate(sizes)]
        self.world = World(self.POLICY, nodes, **self.SETTINGS)  # type: ignore[arg-type]  # settings

    @rule(
        gpus=WIDTHS,
        nodes=st.sampled_from([None, None, None, 2]),
        queue=st.integers(0, 1),
        estimate_s=st.sampled_from([None, 30.0, 300.0, 900.0]),
        steps=STEPS,
        profile=PROFILES,
        grows=st.sampled_from([1, 1, 2, 4]),
        shrinks=st.booleans(),
    )
    def a_submission(
        self,
        gpus: int,
        nodes: int | None,
        queue: int,
        estimate_s: float | None,
        steps: Steps,
        profile: TrafficProfile | None,
        grows: int,
        shrinks: bool,
    ) -> None:
        if nodes is not None and gpus % nodes:
            nodes = None
        sizes: tuple[int, ...] = ()
        if self.world.policy.sizing is not None and grows > 1:
            each = gpus // (nodes or 1)
            sizes = tuple(range(each if shrinks and nodes else gpus, gpus * grows + 1, each))
        job = a_job(
            self.next_id,
            request=Request(gpus=gpus, nodes=nodes, sizes=sizes),
            queue=f"q{queue}",
            user=f"u{queue}",
            priority_base=queue,
            duration_estimate_s=estimate_s,
            steps=steps,
            profile=profile,
        )
        self.world.submit(job)
        self.next_id += 1
        self.decided()

    @rule(pick=st.integers(0, 99), how=st.integers(0, 4))
    def an_end(self, pick: int, how: int) -> None:
        attempt = self.one_of({AttemptState.RUNNING, AttemptState.PAUSING}, pick)
        if attempt is None:
            return
        if attempt.state is AttemptState.PAUSING:
            ends: tuple[attempt_steps.AttemptEvent, ...] = (
                attempt_steps.Preempted(),
                attempt_steps.PreemptedLost(),
                attempt_steps.NodeLost(),
                attempt_steps.Succeeded(),
            )
            if attempt.stop_cause is StopCause.CANCEL:
                ends = (attempt_steps.Cancelled(),)
        else:
            ends = (attempt_steps.Succeeded(), attempt_steps.NodeLost())
        drive.step_attempt(self.world.cluster, attempt.key, ends[how % len(ends)], self.world.now_s)
        self.decided()

    @rule(pick=st.integers(0, 99), kind=st.sampled_from(HoldKind))
    def a_hold(self, pick: int, kind: HoldKind) -> None:
        self.tell_job(pick, job_steps.Held(kind=kind))

    @rule(pick=st.integers(0, 99))
    def a_release(self, pick: int) -> None:
        self.tell_job(pick, job_steps.Released())

    @rule(pick=st.integers(0, 99))
    def a_cancel(self, pick: int) -> None:
        self.tell_job(pick, job_steps.Cancelled())

    @rule(pick=st.integers(0, 99), silent=st.booleans())
    def a_silence(self, pick: int, silent: bool) -> None:
        wanted = ACTIVE if silent else {AttemptState.UNKNOWN}
        attempt = self.one_of(set(wanted), pick)
        if attempt is None:
            return
        event: attempt_steps.AttemptEvent = attempt_steps.NodeSilent()
        if not silent:
            stopping = attempt.stop_cause is not None
            event = attempt_steps.ReturnedPausing() if stopping else attempt_steps.ReturnedRunning()
        drive.step_attempt(self.world.cluster, attempt.key, event, self.world.now_s)
        self.decided()

    @rule(pick=st.integers(0, 99), flag=st.sampled_from(NodeFlag))
    def a_flag(self, pick: int, flag: NodeFlag) -> None:
        nodes = sorted(self.world.cluster.nodes)
        node = self.world.cluster.nodes[nodes[pick % len(nodes)]]
        event = FlagCleared(flag=flag) if flag in node.flags else FlagSet(flag=flag)
        self.world.cluster.put_node(step(node, event, at_s=self.world.now_s))
        self.decided()

    @rule(pick=st.integers(0, 99))
    def a_suspicion(self, pick: int) -> None:
        nodes = sorted(self.world.cluster.nodes)
        node = self.world.cluster.nodes[nodes[pick % len(nodes)]]
        event = Missed() if node.state is NodeState.UP else Heard()
        self.world.cluster.put_node(step(node, event, at_s=self.world.now_s))
        self.decided()

    @rule(seconds=st.sampled_from([0.25, 1.0, 40.0, 271.0, 400.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.now_s += seconds
        self.decided()

    @rule()
    def the_policy_wakes_up(self) -> None:
        wake_s = self.world.wake_at_s
        if wake_s is not None and wake_s > self.world.now_s:
            self.world.now_s = wake_s
        self.decided()
        after_s = self.world.wake_at_s
        assert after_s is None or after_s > self.world.now_s, "it would wake again at once"

    # --- what must hold -------------------------------------------------------------------------

    def decided(self) -> None:
        """Settle the order, compare with the obvious planner, look at every job, then carry out."""
        world = self.world
        while (planned := world.plan()).again:
            for happened in drive.apply(world.cluster, planned, world.now_s, epoch=1):
                world.run_if_placed(happened)
            validate(world.cluster)
        self.lined_up()
        self.compare(planned.changes)
        self.explained(planned.changes)
        outranked = {c.key.job_id for c in planned.changes if isinstance(c, Lapse)}
        self.used(planned.changes)
        world.decide()
        self.settled(outranked)

    def compare(self, changes: tuple[object, ...]) -> None:
        world = self.world
        if world.policy.sizing is not None:
            return  # the obvious planner knows no sizes; tests/sim/test_elastic_replays.py does
        if world.policy.placement.name not in reference_planner.PLACEMENTS:
            return  # the obvious planner does not place like that
        starts = {c.job_id: c.allocation for c in changes if isinstance(c, Start)}
        lapses = {c.key.job_id for c in changes if isinstance(c, Lapse)}
        promoted = any(job.promoted for job in world.cluster.jobs.values())
        if world.policy.taking is Taking.FREE and world.policy.placement.counts_only:
            if not self.pinned_work():
                expected_now = reference_planner.expected_by_count(
                    world.cluster, world.policy, world.now_s
                )
                assert (set(starts), lapses) == expected_now
        elif world.policy.taking is Taking.NEVER and not promoted:
            expected = reference_planner.expected_starts(world.cluster, world.policy)
            found = {
                job_id: {slot.node_id: list(slot.gpu_indices) for slot in allocation.slots}
                for job_id, allocation in starts.items()
            }
            assert found == expected

    def explained(self, changes: tuple[object, ...]) -> None:
        world = self.world
        view = View(world.cluster, world.now_s)
        starts = {c.job_id for c in changes if isinstance(c, Start)}
        glance = ReasonSummary(view, world.policy)
        for job_id, job in list(world.cluster.jobs.items())[-EXPLAINED:]:
            reasons = explain(view, world.policy, job_id)
            attempt = world.cluster.live_attempt(job)
            waits = attempt is None or attempt.suspension is not None
            assert bool(reasons) == (waits or job.ended), job
            codes = {reason.code for reason in reasons}
            assert (ReasonCode.STARTS_NEXT in codes) == (job_id in starts), (job, reasons)
            main = None if job.ended or not reasons else reasons[0].code
            if attempt is not None and waits:
                continue  # a glance tells of jobs without GPUs alone
            assert glance.code(job) is main, (job, reasons)
            kinds = {reason.kind for reason in reasons}
            assert job.ended or kinds.issuperset(glance.kinds(job)), (job, reasons)

    def used(self, changes: tuple[object, ...]) -> None:
        """When leaving is immediate, nobody leaves but for one of a higher priority who takes its
        GPUs.
        """
        world = self.world
        if world.policy.taking is not Taking.FREE or world.policy.placement.counts_only:
            return
        starts = [c for c in changes if isinstance(c, Start)]
        order = lineup(View(world.cluster, world.now_s), world.policy)
        for lapse in (c for c in changes if isinstance(c, Lapse)):
            held = world.cluster.attempts[lapse.key].lease.allocation
            assert lapse.for_job in [s.job_id for s in starts if s.allocation.overlaps(held)]
            winner = world.cluster.jobs[lapse.for_job]
            priority = world.cluster.priority(winner)
            position = order.waiting.by_priority[priority][world.cluster.shape(winner)][
                winner.job_id
            ]
            loser = lapse.key.job_id
            held_at = order.running.places[loser].priority, order.running.position(loser)
            assert (priority, position) < held_at

    def lined_up(self) -> None:
        """The indexes that are kept in order say what sorting everybody says."""
        view = View(self.world.cluster, self.world.now_s)
        if self.world.cluster.key is not None:
            policy = self.world.policy
            full = full_sort.by_key(view, policy.guards.margin)
            assert full_sort.as_lined_up(lineup(view, policy)) == full

    def settled(self, outranked: set[JobId]) -> None:
        """Nobody waits who could run in what is free (unless it is kept for somebody)."""
        world = self.world
        after = plan(View(world.cluster, world.now_s), world.policy)
        more = [change for change in after.changes if not self.may_move(change, outranked)]
        if world.policy.borrowing is not None:
            more = [change for change in more if not isinstance(change, Reserve)]
        more = [change for change in more if not self.has_less_to_do(change)]
        assert not more, f"planning twice changes more: {more}"

    def has_less_to_do(self, change: object) -> bool:
        """A job that has just started may be in time from the next boundary on."""
        if not isinstance(change, Reserve) or change.promised is not None:
            return False
        return self.world.job(change.job_id).start_time_s == self.world.now_s

    def may_move(self, change: object, outranked: set[JobId]) -> bool:
        """Once somebody leaves, the next plan may find better GPUs for those that wait for them,
        and others for who left, be it from a job of a lower priority that has just started; by
        counts alone there is nothing to find."""
        by_count = self.world.policy.placement.counts_only
        return bool(outranked) and not by_count and isinstance(change, Start | Lapse)

    def pinned_work(self) -> bool:
        """Some GPUs can neither be taken nor given just now: counting alone does not say which."""
        cluster = self.world.cluster
        if self.world.leaving:
            return True
        closed = cluster.capacity.closed
        return bool(cluster.claims.silent) or any(
            cluster.attempts_on(node_id) for node_id in closed
        )

    def one_of(self, states: set[AttemptState], pick: int) -> Attempt | None:
        attempts = self.world.cluster.attempts
        keys: list[AttemptKey] = sorted(k for k, a in attempts.items() if a.state in states)
        return attempts[keys[pick % len(keys)]] if keys else None

    def tell_job(self, pick: int, event: job_steps.JobEvent) -> None:
        jobs = self.world.cluster.jobs
        ids: list[JobId] = sorted(
            job_id for job_id, job in jobs.items() if (job.state, type(event)) in job_steps.TABLE
        )
        if ids:
            job_id = ids[pick % len(ids)]
            if jobs[job_id].state is JobState.PENDING:
                return
            drive.step_job(self.world.cluster, job_id, event, self.world.now_s)
            self.decided()


def story(policy: str, **words: str) -> type:
    """The story under one policy, as a test case."""
    return story_of(Story, policy, **words)


def story_of(kind: type[Story], policy: str, **words: str) -> type:
    """Likewise, of this kind."""
    machine = type(f"Story_{policy}", (kind,), {"POLICY": policy, "SETTINGS": words})
    case: type = machine.TestCase  # type: ignore[attr-defined]  # made by hypothesis
    # Sixty stories share their rules; the long profile looks for longer.
    examples = times(3, max(30, settings().max_examples // 10))
    case.settings = settings(max_examples=examples, stateful_step_count=30)  # type: ignore[attr-defined]
    return case


LAS = {"thresholds": "50,400", "starve_limit_s": "900", "promote_knob": "4"}

TestFifoConsolidate = story("fifo", place="consolidate")
TestFifoCount = story("fifo", place="count", preempt="free")
TestQuotasConsolidate = story("yarn-cs", place="consolidate", quota="q0:0.6,q1:0.4")
TestBestEffortConsolidate = story("best-effort", place="consolidate")
TestBestEffortSpread = story("best-effort", place="spread")
TestBestEffortHalving = story("best-effort", place="halving")
TestBestEffortPattern = story("best-effort", place="pattern")
TestWidestFreePattern = story("lf", place="pattern", preempt="free")
TestBestEffortCount = story("best-effort", place="count")
TestSmallestConsolidate = story("sf", place="consolidate")
TestWidestSpread = story("lf", place="spread")
TestWidestFreeCount = story("lf", place="count", preempt="free")
TestSmallestFreeCount = story("sf", place="count", preempt="free")
TestShortestConsolidate = story("srtf", place="consolidate")
TestShortestSpread = story("srtf", place="spread")
TestShortestFreeCount = story("srtf", place="count", preempt="free")
TestShortestServiceFreeConsolidate = story("srsf", place="consolidate", preempt="free")
TestShortestServiceCount = story("srsf", place="count")
TestShortestServiceFreeCount = story("srsf", place="count", preempt="free")
TestTimesliceConsolidate = story("timeslice", place="consolidate")
TestTimesliceCount = story("timeslice", place="count")
TestThemisFreeSpread = story("themis", place="spread", preempt="free", fairness="0.5")
TestThemisFreeCount = story("themis", place="count", preempt="free")
TestDeadlineConsolidate = story("edf", place="consolidate")
TestDeadlineFreeCount = story("edf", place="count", preempt="free")
TestDeadlineOfAllFreeSpread = story("edf-preemptive", place="spread", preempt="free")
TestDeadlineOfAllFreeCount = story("edf-preemptive", place="count", preempt="free")
TestRewardConsolidate = story("3sigma", place="consolidate")
TestRewardFreeCount = story("3sigma", place="count", preempt="free")
TestLaxityFreeConsolidate = story("genie", place="consolidate", preempt="free")
TestLaxityFreeCount = story("genie", place="count", preempt="free")
TestAfsConsolidate = story("afs", place="consolidate")
TestAfsFreeSpread = story("afs", place="spread", preempt="free")
TestGrowShrinkConsolidate = story("gandiva-elastic", place="consolidate")
TestGrowShrinkFreeCount = story("gandiva-elastic", place="count", preempt="free")
TestPolluxConsolidate = story("pollux", place="consolidate")
TestArylConsolidate = story("aryl", place="consolidate")
TestArylGroups = story("aryl", place="groups")
TestArylRolloutFreeGroups = story("aryl", place="groups", preempt="free", size="rollout")
TestBestEffortGroups = story("best-effort", place="groups")
TestArylRolloutFreeCount = story("aryl", place="count", preempt="free", size="rollout")
TestGittinsConsolidate = story("tiresias-gittins", place="consolidate", refresh="2", **LAS)
TestGittinsFreeCount = story(
    "tiresias-gittins",
    place="count",
    preempt="free",
    refresh="1",
    index="sup",
    thresholds="5000",
)
TestGittinsFreeSpread = story(
    "tiresias-gittins", place="spread", preempt="free", refresh="2", last="index", **LAS
)
TestQuantilesFreeCount = story(
    "tiresias-las", place="count", preempt="free", refresh="2", thresholds="q0.3,q0.7"
)
TestLasConsolidate = story("tiresias-las", place="consolidate", **LAS)
TestLasFirstStart = story("tiresias-las", place="consolidate", order="first-start", **LAS)
TestLasLocalSearch = story("tiresias-las", place="local-search", search="500", **LAS)
TestLasSpread = story("tiresias-las", place="spread", **LAS)
TestLasSkew = story("tiresias-las", place="skew", **LAS)
TestLasSkewWait = story("tiresias-las", place="skew", pack="wait", packlimit="learned", **LAS)
TestLasFreeSkew = story("tiresias-las", place="skew", preempt="free", **LAS)
TestShortestFreeSkewWait = story("srtf", place="skew", pack="wait", preempt="free")
TestLasCount = story("tiresias-las", place="count", **LAS)
TestLasFreeCount = story("tiresias-las", place="count", preempt="free", **LAS)
TestLasFreeConsolidate = story("tiresias-las", place="consolidate", preempt="free", **LAS)
TestLasFreeSpread = story("tiresias-las", place="spread", preempt="free", **LAS)
TestLasAtOnce = story("tiresias-las", preempt="at-once", **LAS)
TestGittinsAtOnceSpread = story(
    "tiresias-gittins", place="spread", preempt="at-once", refresh="2", min_run="0", **LAS
)
TestShortestAtOnceCount = story("srtf", place="count", preempt="at-once")
TestQuotasOfTeams = story("dlq", team_quota="u0:4,u1:2")
TestLimitsAndSharesOfTeams = story(
    "dlq", team_limit="u0:4,u1/u1:2", team_jobs="u2:1", team_share="u0:3,*:1", half_life_s="300"
)
TestQuotasOfTeamsEarly = story("chronus", team_quota="*:4", spot="las", thresholds="50,400")

"""Jobs are suspended in any order of events: their GPUs come back to them before any job that ranks
below, under every policy that can suspend, and no part of a move is lost.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from dlq_master.model.attempts import attempt_steps, suspending
from dlq_master.model.attempts.attempt import Attempt, AttemptState, SuspensionPhase
from dlq_master.model.attempts.suspending import Next, SuspendRules
from dlq_master.model.cluster import drive
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.reward import BEST_EFFORT, strict
from dlq_master.model.lease import first_term_end_s
from dlq_master.model.plan import Resize, Start
from dlq_master.model.resources import Allocation
from dlq_master.model.transitions import StopCause
from dlq_master.model.view import View
from dlq_master.policy.order.suspended import out_places
from dlq_master.policy.pipeline import lineup
from dlq_master.policy.registry.presets import PRESETS
from property.test_core_world import LAS, Story
from support.builders import World, a_node
from support.extent import LONG, times

SUSPENDS = {"suspend": "always", "suspend_guests_s": "1000", "min_run": "off"}


class SuspensionStory(Story):
    """Every node can suspend; agents and people answer in any order."""

    @initialize(sizes=st.lists(st.sampled_from([2, 4, 4, 4]), min_size=1, max_size=4))
    def a_cluster(self, sizes: list[int]) -> None:
        nodes = [a_node(f"n{i}", gpus, suspend_bytes=1 << 50) for i, gpus in enumerate(sizes)]
        self.world = World(self.POLICY, nodes, **self.SETTINGS)  # type: ignore[arg-type]  # settings
        assert self.world.policy.suspends is not None

    @rule(pick=st.integers(0, 99), refuses=st.sampled_from([False, False, False, True]))
    def a_move_ends(self, pick: int, refuses: bool) -> None:
        moving = [it for it in self.suspended() if not it.is_out]
        if not moving:
            return
        attempt = moving[pick % len(moving)]
        assert attempt.suspension is not None
        event: attempt_steps.AttemptEvent = attempt_steps.Unsuspended()
        if attempt.suspension.phase is SuspensionPhase.LEAVING:
            event = (
                attempt_steps.SuspendRefused(detail="no")
                if refuses
                else (attempt_steps.Suspended())
            )
        drive.step_attempt(self.world.cluster, attempt.key, event, self.world.now_s)
        self.decided()

    @rule(pick=st.integers(0, 99))
    def a_person_suspends(self, pick: int) -> None:
        cluster = self.world.cluster
        attempt = self.one_of({AttemptState.RUNNING}, pick)
        if attempt is None:
            return
        nodes = [cluster.nodes[it] for it in attempt.place.node_ids]
        if not suspending.obstacle(attempt, cluster.jobs[attempt.key.job_id], nodes):
            now_s = self.world.now_s
            drive.suspend_attempt(cluster, attempt.key, now_s, for_job=None, why="")
            self.decided()

    @rule(pick=st.integers(0, 99))
    def a_person_wants_it_back(self, pick: int) -> None:
        asked = [it for it in self.suspended() if it.suspension and it.suspension.for_job is None]
        if asked:
            key = asked[pick % len(asked)].key
            drive.step_attempt(
                self.world.cluster, key, attempt_steps.WantedBack(), self.world.now_s
            )
            self.decided()

    # --- what must hold -------------------------------------------------------------------------

    def decided(self) -> None:
        super().decided()
        self.within_limits()
        for attempt in self.suspended():
            self.comes_back(attempt)

    def within_limits(self) -> None:
        """No account is above its limit, with the GPUs to which its suspended jobs come back."""
        cluster, limits = self.world.cluster, self.world.policy.limits
        for account, most in (limits or {}).items():
            told = [(cluster.jobs[key.job_id], it) for key, it in cluster.attempts.items()]
            held = [  # what an elastic job has beyond its base counts for nobody
                min(it.place.width, job.request.base) for job, it in told if job.user == account
            ]
            assert sum(held) <= most, (account, held, most)

    def settled(self, outranked: set[JobId]) -> None:
        """A suspended job has another place by an order that is made anew once its guest runs. A
        job that shrinks counts whole in a limit while it saves.
        """
        policy = self.world.policy
        if not (policy.order.anew or policy.placement.counts_only or policy.limits):
            super().settled(outranked)

    def used(self, changes: tuple[object, ...]) -> None:
        """No job that ranks below a suspended one gets its GPUs."""
        super().used(changes)
        cluster = self.world.cluster
        view, policy = View(cluster, self.world.now_s), self.world.policy
        order = lineup(view, policy)
        places = out_places(view, order, policy.guards.margin, policy.order.anew)
        outs = {out.job_id: out for out in places}
        for attempt in self.suspended():
            out = outs.get(attempt.key.job_id)
            if out is None:
                continue
            for job_id, gained in self.gained(changes):
                if not gained.overlaps(attempt.place):
                    continue
                job = cluster.jobs[job_id]
                priority = cluster.priority(job)
                at = (priority, order.position(priority, cluster.shape(job), job_id))
                first = job.band < Band.SPOT  # slots of promises and trials come before all others
                assert first or at < out[:2], (job_id, at, out)

    def gained(self, changes: tuple[object, ...]) -> Iterator[tuple[JobId, Allocation]]:
        for change in changes:
            if isinstance(change, Start):
                yield change.job_id, change.allocation
            elif isinstance(change, Resize):
                held = self.world.cluster.attempts[change.key].lease.allocation
                yield change.key.job_id, change.allocation - held

    def suspended(self) -> list[Attempt]:
        found = self.world.cluster.attempts.values()
        return [it for it in found if it.state is AttemptState.SUSPENDED]

    def comes_back(self, attempt: Attempt) -> None:
        cluster, now_s = self.world.cluster, self.world.now_s
        nodes = [cluster.nodes[it] for it in attempt.place.node_ids]
        out = attempt.suspension
        assert out is not None
        guest = None if out.for_job is None else cluster.jobs[out.for_job]
        step, _ = suspending.next_step(
            attempt,
            nodes,
            guest_waits=guest is not None and guest.waiting,
            gpus_free=cluster.is_free(attempt.place),
            now_s=now_s,
            rules=SuspendRules(),
        )
        if step is Next.RESUME:
            lead_s = cluster.saves.lead_s
            end_s = first_term_end_s(now_s, attempt.lease.kind, cluster.terms, lead_s)
            event = attempt_steps.ResumeAsked(term_end_s=end_s)
            drive.step_attempt(cluster, attempt.key, event, now_s)
        elif step is Next.THROW_BACK:
            stop = attempt_steps.StopRequested(cause=StopCause.PREEMPT, grace_s=0.0)
            drive.step_attempt(cluster, attempt.key, stop, now_s)


# Policy and settings of each that can suspend.
KINDS: list[tuple[str, dict[str, str]]] = [
    ("dlq", {"foresight": "off"}),
    ("dlq", {"team_quota": "u0:4,u1:2", "hysteresis": "off"}),
    ("dlq", {"team_limit": "u0:4,u1:3", "hysteresis": "off"}),
    ("sf", {"preempt": "suspend"}),
    ("lf", {"preempt": "suspend", "place": "spread"}),
    ("srtf", {"preempt": "suspend", "place": "pattern"}),
    ("srtf", {"preempt": "suspend", "place": "count"}),
    ("srtf", {"preempt": "suspend", "place": "spread"}),
    ("srsf", {}),
    ("timeslice", {}),
    ("chronus", {}),
    ("chronus-paper", {}),
    ("afs", {}),
    ("tiresias-las", {"preempt": "suspend", **LAS}),
    ("tiresias-gittins", {"preempt": "suspend", "refresh": "2", **LAS}),
    ("3sigma", {}),
    ("edf-preemptive", {"preempt": "suspend"}),
    ("edf", {}),
    ("gandiva", {}),
    ("genie", {}),
    ("themis", {}),
]


def machine_of(policy: str, words: dict[str, str]) -> SuspensionStory:
    kind = type(
        f"Suspends_{policy}",
        (SuspensionStory,),
        {"POLICY": policy, "SETTINGS": {**SUSPENDS, **words}},
    )
    machine: SuspensionStory = kind()
    return machine


def walk(machine: SuspensionStory, draw: random.Random, steps: int) -> int:
    """Long jobs fill two nodes, and short ones come; returns how often a job was out for one."""
    machine.a_cluster([4, 4])
    out = 0
    for _ in range(steps):
        kind = draw.random()
        pick = draw.randrange(100)
        if kind < 0.3:
            guest = draw.random() < 0.5
            machine.a_submission(
                gpus=draw.choice((1, 1, 2)) if guest else draw.choice((2, 3, 4, 4)),
                nodes=None,
                queue=draw.randrange(2),
                estimate_s=30.0 if guest else draw.choice((900.0, 3000.0)),
                steps=draw.choice((BEST_EFFORT, BEST_EFFORT, strict(100.0))),
                profile=None,
                grows=draw.choice((1, 1, 2)),
                shrinks=False,
            )
        elif kind < 0.4:
            machine.an_end(pick, 0)
        elif kind < 0.8:
            machine.a_move_ends(pick, refuses=draw.random() < 0.05)
        elif kind < 0.82:
            machine.a_person_suspends(pick)
        elif kind < 0.84:
            machine.a_person_wants_it_back(pick)
        elif kind < 0.95:
            machine.time_passes(draw.choice((1.0, 40.0, 280.0)))
        else:
            machine.the_policy_wakes_up()
        moved = [it.suspension for it in machine.suspended() if it.is_out]
        out += sum(it is not None and it.for_job is not None for it in moved)
    return out


@pytest.mark.parametrize(("policy", "words"), KINDS)
def test_no_job_starts_on_the_gpus_of_a_suspended_one_above_it(
    policy: str, words: dict[str, str]
) -> None:
    draw = random.Random(f"{policy} {words}")
    out = [walk(machine_of(policy, words), draw, 60) for _ in range(times(1, 30))]
    assert not LONG or any(out)


def test_every_policy_that_can_suspend_is_walked() -> None:
    told = {policy for policy, _ in KINDS}
    assert {name for name, preset in PRESETS.items() if "suspend" in preset.settings} == told

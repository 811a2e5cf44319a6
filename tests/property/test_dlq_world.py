"""The core's stories under `dlq` and `chronus-paper`: lent servers that come and go, elastic jobs,
deadlines, and estimates that come.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from dlq_master.model.cache import Memo
from dlq_master.model.jobs import job_steps
from dlq_master.model.jobs.reward import BEST_EFFORT, soft, strict
from dlq_master.model.nodes.node import NodeFlag, NodePool
from dlq_master.model.nodes.owned import is_own
from dlq_master.model.plan import Resize, Start
from dlq_master.model.resources import Allocation, Request
from dlq_master.model.view import View
from dlq_master.policy.admit.deadlines import book_of
from dlq_master.policy.promise.capacity.fluid import Slots
from dlq_master.policy.promise.capacity.grids import kept_grid, type_of
from dlq_master.policy.promise.slots.plan import faults
from dlq_master.policy.promise.verdicts.admission import PromiseBook
from dlq_master.policy.promise.verdicts.reading import (
    kept_plan,
    margin,
    may_make_way,
    slo_job,
    will_end,
)
from property.test_core_world import PROFILES, Story, story_of
from support.builders import World, a_job, a_node

OTHERS = ("A100", "H100")
TYPES = st.sampled_from(["H100", "H100", "H100", "A100"])
STEPS = st.sampled_from(
    [BEST_EFFORT, strict(2000.0), strict(4000.0), soft([(1500.0, 100.0), (9000.0, 50.0)])]
)
JOBS = st.tuples(
    st.sampled_from([1, 1, 2, 2, 3, 4, 8]),
    st.sampled_from([None, "H100", "H100", "A100"]),
    st.sampled_from([None, 100.0, 800.0, 2500.0]),
    STEPS,
    PROFILES,
    st.sampled_from([(), (), (1, 2), (1, 2, 4)]),
    st.booleans(),
    st.booleans(),
)


class DlqStory(Story):
    """The same, where some nodes are lent."""

    @initialize(
        sizes=st.lists(
            st.tuples(st.sampled_from([2, 4, 4, 6]), TYPES, st.booleans()), min_size=2, max_size=5
        )
    )
    def a_cluster(self, sizes: list[tuple[int, str, bool]]) -> None:
        nodes = [
            a_node(f"n{i}", gpus, kind, flags=frozenset([NodeFlag.LOANED] if lent and i else []))
            for i, (gpus, kind, lent) in enumerate(sizes)
        ]
        self.world = World(self.POLICY, nodes, **self.SETTINGS)  # type: ignore[arg-type]  # settings

    @rule(jobs=st.lists(JOBS, min_size=1, max_size=4))
    def a_submission(self, jobs: list[Any]) -> None:
        for gpus, gpu_type, estimate_s, steps, profile, stretch, keeps, mixes in jobs:
            sizes = tuple(gpus * times for times in stretch)
            mixed = mixes and gpu_type is None and not sizes
            job = a_job(
                self.next_id,
                request=Request(
                    gpus=gpus,
                    gpu_type=gpu_type,
                    or_gpu_types=tuple(it for it in OTHERS if mixes and gpu_type not in (None, it)),
                    sizes=sizes,
                    mixed=mixed,
                ),
                duration_estimate_s=estimate_s,
                steps=steps,
                profile=profile,
                keeps_work=keeps or bool(sizes),
            )
            self.world.submit(job)
            self.next_id += 1
        self.decided()

    @rule(pick=st.integers(0, 99), pool=st.sampled_from(NodePool))
    def a_node_changes_hands(self, pick: int, pool: NodePool) -> None:
        nodes = sorted(self.world.cluster.nodes)
        node = self.world.cluster.nodes[nodes[pick % len(nodes)]]
        self.world.cluster.put_node(node._replace(pool=pool))
        self.decided()

    @rule(pick=st.integers(0, 99), estimate_s=st.sampled_from([20.0, 400.0, 3000.0]))
    def an_estimate(self, pick: int, estimate_s: float) -> None:
        self.tell_job(pick, job_steps.Estimated(estimate_s=estimate_s))

    # --- what must hold -------------------------------------------------------------------------

    def used(self, changes: tuple[object, ...]) -> None:
        """Deadlines are worked for on the cluster's own nodes, on what was asked; nobody loses its
        base.
        """
        cluster = self.world.cluster
        for change in changes:
            if isinstance(change, Resize):
                job = cluster.jobs[change.key.job_id]
                own = not job.steps or job.promised is None
                assert own or all(
                    is_own(cluster.nodes[node]) for node in change.allocation.node_ids
                )
                before = cluster.attempts[change.key].lease.allocation
                stays = gpus_of(before) & gpus_of(change.allocation)
                assert len(stays) >= job.request.base
            if isinstance(change, Start) and cluster.jobs[change.job_id].steps:
                job, allocation = cluster.jobs[change.job_id], change.allocation
                assert allocation.width in (job.request.sizes or (job.request.gpus,))
                if job.promised is not None or cluster.own_holds(job.request.shape):
                    assert all(is_own(cluster.nodes[slot.node_id]) for slot in allocation.slots), (
                        job
                    )

    def decided(self) -> None:
        slot = self.world.cluster.slot
        super().decided()
        self.the_book_is_what_a_new_look_finds()
        if self.world.cluster.slot > slot:
            self.promises_stand()

    def the_book_is_what_a_new_look_finds(self) -> None:
        """Of promises only who has changed is read anew."""
        view, rules = View(self.world.cluster, self.world.now_s), self.world.policy.promises
        assert rules is not None
        cluster, known = view.cluster, view.cluster.memo
        for gpu_type in {type_of(cluster, cluster.jobs[job_id]) for job_id in cluster.promised}:
            kept = book_of(view, gpu_type, rules)
            slots = kept.ledger().horizon
            cluster.memo = Memo()
            fresh = book_of(view, gpu_type, rules)
            cluster.memo = known
            assert kept == fresh
            assert [*kept.plan.segments] == [*fresh.plan.segments]
            assert kept.ledger().rows == fresh.ledger(slots).rows
            assert [*kept.ledger().rows] == [job.key for job in fresh.jobs]
            least = min(slots, fresh.ledger().horizon)
            for name in ("free", "left"):
                was, now = ledger_of(kept, name)[:least], ledger_of(fresh, name)[:least]
                assert (was == now).all(), name

    def promises_stand(self) -> None:
        """A slot has been decided: whoever is promised anything has slots that keep it."""
        world, rules = self.world, self.world.policy.promises
        assert rules is not None
        cluster, origin = world.cluster, world.cluster.slot
        view, extra = View(cluster, world.now_s), margin(cluster, rules)
        jobs = [cluster.jobs[job_id] for job_id in sorted(cluster.promised)]
        jobs = [job for job in jobs if job.planned(origin) or job.slots]
        for gpu_type in {type_of(cluster, job) for job in jobs}:
            grid = kept_grid(cluster, gpu_type, cluster.slot, rules)
            held = [job for job in jobs if type_of(cluster, job) == gpu_type]
            asked = [
                slo_job(cluster, job, origin, extra, spare=may_make_way(job, grid)) for job in held
            ]
            assert faults(kept_plan(held, origin), asked, grid) == []
        assert not [
            job
            for job in map(cluster.jobs.__getitem__, cluster.promised)
            if not job.slots and not will_end(view, job, origin, extra) and not job.live_attempt
        ]


def ledger_of(book: PromiseBook, name: str) -> Slots:
    ledger = book.ledger()
    return ledger.free if name == "free" else ledger.demand.left


def gpus_of(allocation: Allocation) -> set[tuple[str, int]]:
    return {(str(slot.node_id), gpu) for slot in allocation.slots for gpu in slot.gpu_indices}


TestDlqKnown = story_of(DlqStory, "dlq", know="known", guarantee="fitting", be_floor="0")
TestDlqProfiled = story_of(DlqStory, "dlq", know="profiled")
TestDlqUnknown = story_of(DlqStory, "dlq", know="unknown")
TestDlqEarly = story_of(DlqStory, "dlq", slots="early", select="all", spot="las")
TestChronusPaper = story_of(DlqStory, "chronus-paper", know="known")

"""Lent servers in replays under every reclaim rule: a schedule by hand, and what holds whatever the
trace.
"""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import NodeId
from dlq_master.model.nodes.node import NodeFlag
from dlq_master.model.plan import Start
from dlq_master.policy.reclaim.choices import RECLAIMS
from dlq_master.policy.turn import Decided
from dlq_simulator.replay.engine import Replay, replay
from dlq_simulator.results.report import Result
from dlq_simulator.settings import read_settings
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.clusters import ClusterSpec, NodeGroup
from dlq_simulator.world.loans import LoanStep
from support.extent import times
from support.validate import validate

COSTS = ("term_s=60", "save_s=7", "resume_s=5")
OWN = NodeGroup(name="own", count=1, gpus=2, gpu_type="V")


def lent(count: int, *steps: tuple[int, int], gpus: int = 2) -> NodeGroup:
    given_ = tuple(LoanStep(*step) for step in steps)
    return NodeGroup(name="lent", count=count, gpus=gpus, gpu_type="T", lent=given_)


def job(name: str, least: int, most: int, work: int, submit_s: int = 0, **more: object) -> TraceJob:
    """From `least` to `most` one-GPU workers, and so many GPU-seconds."""
    return TraceJob(
        job_id=name,
        submit_time_s=submit_s,
        num_gpus=least,
        duration_s=work / least,
        min_workers=least,
        max_workers=most,
        **more,  # type: ignore[arg-type]
    )


def run(jobs: list[TraceJob], *groups: NodeGroup, words: tuple[str, ...]) -> Result:
    (chosen,) = read_settings(["aryl"], words)
    return replay(Trace.of("t", jobs), ClusterSpec(name="c", groups=groups), chosen)


def test_a_reclaim_of_flexible_workers_shrinks_and_preempts_nobody() -> None:
    """2 + 2 workers until 100 s, 7 s to save and 5 to resume, then 2 until the 600 GPU-seconds are
    done.
    """
    result = run([job("a", 2, 4, 600)], lent(2, (0, 2), (100, 1)), words=COSTS)
    (only,) = result.outcomes
    assert [(span.begin_s, span.end_s, span.gpus) for span in only.spans] == [
        (0, 107, 4),
        (107, 107 + 5 + 100, 2),
    ]
    assert (only.preemptions, only.resizes, only.overhead_s) == (1, 1, 12)
    figures = result.metrics
    assert (figures.reclaim_preemption_ratio, figures.reclaim_flexible_share) == (0.0, 1.0)
    assert figures.reclaim_collateral_damage == 0.0


def test_a_reclaim_of_a_base_preempts_and_vacates_what_the_job_holds_elsewhere() -> None:
    """Both of its servers have its base: 2 GPUs are asked for, and 2 more fall free."""
    jobs = [job("a", 4, 4, 400), job("b", 2, 2, 600, gpu_type="V")]
    result = run(jobs, OWN, lent(2, (0, 2), (20, 1), (50, 2)), words=COSTS)
    wide = result.outcomes[0]
    # Stopped at 20, gone at 27; at 50 both servers are back, and 80 s are left after 5 s.
    assert [(span.begin_s, span.end_s) for span in wide.spans] == [(0, 27), (50, 135)]
    figures = result.metrics
    assert (figures.reclaim_preemption_ratio, figures.reclaim_collateral_damage) == (0.5, 1.0)
    assert figures.reclaim_flexible_share == 0.0


def test_the_exact_rule_preempts_one_job_where_a_fixed_order_preempts_two() -> None:
    """The wide job on lent-1 and lent-2, one on each half of lent-3: two servers are asked back."""
    jobs = [job("wide", 4, 4, 800), job("b", 1, 1, 900), job("c", 1, 1, 900)]
    ratios = {}
    for rule in ("exact", "aryl", "lsf"):
        words = (f"reclaim={rule}", *COSTS)
        result = run(jobs, lent(3, (0, 3), (20, 1), (40, 3)), words=words)
        ratios[rule] = result.metrics.reclaim_preemption_ratio
    assert ratios == pytest.approx({"exact": 1 / 3, "aryl": 1 / 3, "lsf": 1.0}, abs=1e-6)


# --- whatever the trace ---------------------------------------------------------------------------

CHOICES = [
    (f"reclaim={rule}", f"size={size}", *cost)
    for rule, (size, cost) in product(
        RECLAIMS, (("knapsack", COSTS), ("rollout", ("preempt=free",)))
    )
]
ROWS = st.lists(
    st.tuples(
        st.integers(0, 300),
        st.integers(1, 4),
        st.integers(1, 3),
        st.integers(0, 300),
        st.booleans(),
    ),
    min_size=1,
    max_size=8,
)


class Watch:
    """After every turn: sound state; nothing starts but on own servers and on those that are lent;
    and nobody is on a server that is away."""

    def __init__(self, ids: list[NodeId]) -> None:
        self.ids = ids

    def __call__(self, cluster: Cluster, decided: Decided, _now_s: float) -> None:
        validate(cluster)
        flags = {node_id: cluster.nodes[node_id].flags for node_id in self.ids}
        for node_id in self.ids:
            if NodeFlag.LOANED not in flags[node_id]:
                assert not cluster.nodes[node_id].open
                assert not cluster.attempts_on(node_id), "it has left, and somebody is there"
            elif NodeFlag.RECLAIMED in flags[node_id]:
                assert cluster.attempts_on(node_id), "it is empty, and has not left"
        for one in decided.happened:
            if isinstance(one.change, Start):
                for slot in one.change.allocation.slots:
                    assert flags.get(slot.node_id, {NodeFlag.LOANED}) == {NodeFlag.LOANED}


# A later round of the decision at 0 takes back GPUs on which the fourth was to start.
TAKEN_BACK = [
    (0, 2, 3, 197, False),
    (0, 3, 2, 211, False),
    (0, 2, 3, 1, True),
    (215, 2, 2, 211, True),
    (0, 2, 2, 211, False),
    (21, 2, 1, 75, True),
    (85, 1, 3, 1, False),
    (19, 3, 3, 54, True),
]


@example(rows=TAKEN_BACK, servers=[2], choice=("reclaim=random", "size=rollout", "preempt=free"))
@given(
    rows=ROWS,
    servers=st.lists(st.integers(0, 3), min_size=1, max_size=6),
    choice=st.sampled_from(CHOICES),
)
@settings(max_examples=times(20, 60), deadline=None)
def test_lent_servers_come_and_go_and_all_work_is_done(
    rows: list[tuple[int, int, int, int, bool]], servers: list[int], choice: tuple[str, ...]
) -> None:
    group = lent(3, *((70 * at, count) for at, count in enumerate([*servers, 3])), gpus=3)
    own = NodeGroup(name="own", count=1, gpus=3, gpu_type="V")
    jobs = [
        job(
            str(number),
            least,
            least * stretch,
            least * took_s,
            submit_s,
            any_gpu=True,
            checkpoint=saves,
        )
        for number, (submit_s, least, stretch, took_s, saves) in enumerate(rows)
    ]
    (chosen,) = read_settings(["aryl"], choice)
    trace, spec = Trace.of("random", jobs), ClusterSpec(name="c", groups=(own, group))
    watch = Watch([NodeId(node_id) for node_id in group.each_node()])
    made = Replay(trace, spec, chosen, watch=watch)
    made.run()
    assert {outcome.job.job_id for outcome in made.outcomes.values()} == {
        one.job_id for one in jobs
    }
    assert replay(trace, spec, chosen).outcomes == [
        made.outcomes[key] for key in sorted(made.outcomes)
    ]
    for outcome in made.outcomes.values():
        assert outcome.queue_s >= -1e-6
        held = sum((span.end_s - span.begin_s) * span.gpus for span in outcome.spans)
        assert held >= outcome.job.num_gpus * outcome.job.duration_s - 1e-6
    stops = sum(outcome.preemptions - outcome.resizes for outcome in made.outcomes.values())
    assert stops == made.leaving.reclaimed, "nobody is preempted but by a reclaim"


@pytest.mark.parametrize("rule", sorted(RECLAIMS))
def test_every_rule_is_a_setting_of_every_policy(rule: str) -> None:
    for policy in ("fifo", "timeslice", "aryl", "tiresias-las"):
        (chosen,) = read_settings([policy], [f"reclaim={rule}"])
        assert chosen.policy.reclaim.name == rule

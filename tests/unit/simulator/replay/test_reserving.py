"""Reserved nodes in a replay: what the master does about them happens there too."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlq_simulator.errors import DataError
from dlq_simulator.replay.engine import Replay, replay
from dlq_simulator.settings import read_settings
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.clusters import ClusterSpec, NodeGroup, read_cluster
from dlq_simulator.world.reservations import ReservedNodes, reserved_seconds, windows_of

ONE = (ReservedNodes(("node-1",), 1000, 2000),)
COSTS = ["term_s=60", "save_s=7", "resume_s=5"]


def a_cluster(nodes: int, *reservations: ReservedNodes) -> ClusterSpec:
    groups = (NodeGroup(count=nodes, gpus=4),)
    return ClusterSpec(name="c", groups=groups, reservations=reservations or ONE)


def a_job(name: str, submit_s: float, duration_s: float, gpus: int = 4, **told: object) -> TraceJob:
    return TraceJob(
        job_id=name,
        submit_time_s=submit_s,
        num_gpus=gpus,
        duration_s=duration_s,
        **told,  # type: ignore[arg-type]  # as a row has them
    )


def starts(spec: ClusterSpec, policy: str, *jobs: TraceJob) -> dict[str, list[float]]:
    """When each job got GPUs."""
    (chosen,) = read_settings([policy], COSTS)
    result = replay(Trace.of("t", list(jobs)), spec, chosen)
    return {it.job.job_id: [span.begin_s for span in it.spans] for it in result.outcomes}


def test_who_would_run_into_it_waits_until_it_is_over() -> None:
    jobs = [a_job("short", 900, 50), a_job("long", 945, 500, checkpoint=False)]
    assert starts(a_cluster(1), "srtf", *jobs) == {"short": [900], "long": [2000]}
    nothing = a_cluster(1, ReservedNodes(("node-1",), 90_000, 90_001))
    assert starts(nothing, "srtf", *jobs) == {"short": [900], "long": [950]}


def test_other_nodes_are_taken_instead() -> None:
    (chosen,) = read_settings(["srtf"], COSTS)
    trace = Trace.of("t", [a_job("long", 945, 500, checkpoint=False)])
    on: list[str] = []
    replay(
        trace,
        a_cluster(2),
        chosen,
        watch=lambda cluster, _, now_s: on.extend(
            node_id
            for attempt in cluster.attempts.values()
            for node_id in attempt.lease.allocation.node_ids
        ),
    )
    assert set(on) == {"node-2"}


def test_who_runs_when_it_begins_saves_and_goes_on_after_it() -> None:
    found = starts(a_cluster(1), "srtf", a_job("saves", 100, 1500))
    assert found == {"saves": [100, 2000]}
    lost = starts(a_cluster(1), "fifo", a_job("loses", 100, 1500, checkpoint=False))
    assert lost == {"loses": [2000]}, "nobody knows how long it runs, and it would lose its work"


def test_who_waits_comes_to_run_into_it_as_time_goes() -> None:
    """When `b` comes it would have had time enough; when the node is free it has not."""
    jobs = [a_job("a", 0, 900, checkpoint=False), a_job("b", 700, 210, checkpoint=False)]
    assert starts(a_cluster(1), "srtf", *jobs) == {"a": [0], "b": [2000]}


def test_windows_of_one_node_may_overlap() -> None:
    both = (ReservedNodes(("node-1",), 1000, 1500), ReservedNodes(("node-1",), 1200, 2000))
    assert starts(a_cluster(1, *both), "srtf", a_job("a", 1100, 10)) == {"a": [2000]}
    windows = windows_of(both)["node-1"]
    assert reserved_seconds(windows, 0, 9000) == 1000
    assert reserved_seconds(windows, 1100, 1900) == 800


def test_what_is_reserved_is_no_capacity() -> None:
    (chosen,) = read_settings(["srtf"], COSTS)
    trace = Trace.of("t", [a_job("a", 0, 1000), a_job("b", 2000, 1000)])
    assert replay(trace, a_cluster(1), chosen).metrics.gpu_utilization == 1.0


def test_deadlines_are_promised_without_it_and_kept() -> None:
    """The whole cluster is away when the first deadline comes; a later one can be promised, and is
    kept.
    """
    spec = a_cluster(1, ReservedNodes(("node-1",), 1800, 7200))
    (chosen,) = read_settings(
        ["chronus"], ["know=known", "be_floor=0", "margin=0", "slo_term_s=600", *COSTS]
    )
    for deadline_s, promised in ((5000, False), (12_000, True)):
        job = a_job("a", 10, 3000, kind="strict", deadline_s=deadline_s)
        run = Replay(Trace.of("t", [job]), spec, chosen)
        run.run()
        (found,) = run.outcomes.values()
        assert (found.promised_s is not None) is promised
        assert found.jct_s <= 12_000


@pytest.mark.parametrize("policy", ["chronus", "dlq"])
def test_who_is_promised_leaves_when_the_slot_begins_in_which_its_node_is_reserved(
    policy: str,
) -> None:
    """Only when the reservation begins it would find the other node in use until a term ends there,
    and be late.
    """
    spec = a_cluster(2, ReservedNodes(("node-1",), 905, 3000))
    settings = ["know=known", "be_floor=0", "margin=0", "slo_term_s=600", "slots=early", *COSTS]
    (chosen,) = read_settings([policy], settings)
    bound = a_job("bound", 10, 2000, kind="strict", deadline_s=2700)
    run = Replay(Trace.of("t", [bound, a_job("other", 20, 5000)]), spec, chosen)
    run.run()
    found = {outcome.job.job_id: outcome for outcome in run.outcomes.values()}
    first, *more = found["bound"].spans
    assert (first.begin_s, first.end_s) == (10, 600), "not 905"
    assert [span.begin_s for span in more] == [600]
    assert found["bound"].promised_s is not None
    assert found["bound"].jct_s <= 2700


FILE = """
[[nodes]]
name = "a"
count = 2
gpus = 4

[[reservations]]
nodes = ["a-2"]
start = 3600
end = 7200

[[reservations]]
nodes = ["a"]
start = 9000
end = 9600
"""


def test_a_cluster_file_names_nodes_or_groups(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(FILE)
    found = read_cluster(str(path)).reservations
    assert found == (ReservedNodes(("a-2",), 3600, 7200), ReservedNodes(("a-1", "a-2"), 9000, 9600))


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (FILE.replace('["a-2"]', '["a-3"]'), "no node of its own called 'a-3'"),
        (FILE.replace('["a-2"]', "[]"), "nodes is not a list of names"),
        (FILE.replace("end = 7200", "end = 3600"), "it would end before it begins"),
        (FILE.replace("end = 7200", ""), "end is missing"),
        (FILE.replace("start = 3600", "begin = 3600"), "unknown key 'begin'"),
        ("reservations = 3\n" + FILE.split("\n\n")[0], "no \\[\\[reservations\\]\\] table"),
    ],
)
def test_a_broken_table_is_named(tmp_path: Path, broken: str, why: str) -> None:
    path = tmp_path / "c.toml"
    path.write_text(broken)
    with pytest.raises(DataError, match=why):
        read_cluster(str(path))

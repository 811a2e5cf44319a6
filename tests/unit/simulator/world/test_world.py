"""What the scheduler is told of a row, and what it is not."""

from __future__ import annotations

from pathlib import Path

from dlq_master.model.ids import JobId
from dlq_master.model.lease import Terms
from dlq_master.model.order.order import Ordering
from dlq_simulator.replay.engine import replay
from dlq_simulator.settings import read_settings
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.clusters import ClusterSpec, NodeGroup, read_cluster
from dlq_simulator.world.world import build_cluster, build_job


def a_row(**more: object) -> TraceJob:
    row = {"job_id": "x7", "submit_time_s": 5, "num_gpus": 4, "duration_s": 999, **more}
    return TraceJob(**row)  # type: ignore[arg-type]  # a builder of keyword arguments


def test_a_job_is_known_by_its_request_and_never_by_its_duration() -> None:
    job = build_job(JobId(1), a_row(user="ann"), typed=True)
    assert (job.name, job.user, job.request.gpus, job.submit_time_s) == ("x7", "ann", 4, 5)
    assert job.duration_estimate_s is None


def test_a_gpu_type_counts_only_on_a_cluster_that_names_types() -> None:
    row = a_row(gpu_type="V100")
    assert build_job(JobId(1), row, typed=True).request.gpu_type == "V100"
    assert build_job(JobId(1), row, typed=False).request.gpu_type is None


def test_a_job_that_takes_any_gpu_names_no_type() -> None:
    row = a_row(gpu_type="V100", any_gpu=True)
    assert build_job(JobId(1), row, typed=True).request.gpu_type is None


def test_nodes_are_virtual_up_and_empty(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('[[nodes]]\nname = "v"\ncount = 2\ngpus = 8\ngpu_type = "V100"\n')
    cluster = build_cluster(read_cluster(str(path)), Ordering(), Terms())
    assert sorted(cluster.nodes) == ["v-1", "v-2"]
    for node in cluster.nodes.values():
        assert node.virtual
        assert node.open
        assert [gpu.gpu_type for gpu in node.gpus] == ["V100"] * 8


def test_a_gang_is_as_fast_as_its_slowest_node() -> None:
    """One GPU each of speeds 2, 0.5 and 4: 100 s of work take as long as on the slow one."""
    speeds = {"a": 2, "b": 0.5, "c": 4}
    groups = tuple(NodeGroup(name=n, count=1, gpus=1, speed=speed) for n, speed in speeds.items())
    row = TraceJob(job_id="g", submit_time_s=0, num_gpus=3, duration_s=100)
    (chosen,) = read_settings(["fifo"], [])
    result = replay(Trace.of("t", [row]), ClusterSpec(name="c", groups=groups), chosen)
    assert [outcome.finish_s for outcome in result.outcomes] == [200]

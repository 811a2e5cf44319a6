"""Processes for each GPU, workers and servers: what a spec may say, and which output is whose."""

import pytest

from dlq.v1 import job_pb2
from dlq_cli.jobs.streams import Stream, stream_of
from dlq_cli.spec.fields import put
from dlq_cli.spec.message import to_message
from dlq_cli.spec.validate import finish
from dlq_cli.spec.values.given import Layer
from dlq_common.errors import InvalidRequest


def message(**said: object) -> job_pb2.JobSpec:
    layer: Layer = {}
    put(layer, "command", ["train"], "job.toml:1")
    for number, (key, value) in enumerate(said.items(), start=2):
        put(layer, key.replace("__", "."), value, f"job.toml:{number}")
    return to_message(finish(layer, directory="/"))


def attempt(*gpus: int) -> job_pb2.Attempt:
    made = job_pb2.Attempt(attempt=1)
    for count in gpus:
        made.lease.allocation.slots.add(gpu_indexes=range(count))
    return made


def test_workers_have_a_gpu_each_unless_gpus_are_asked_for() -> None:
    spec = message(roles__workers=4, roles__ps=2)
    assert (spec.roles.worker_count, spec.roles.ps_count, spec.resources.gpu_count) == (4, 2, 4)
    wide = message(roles__workers=4, nodes=2, resources__gpus=4)
    assert (wide.resources.gpu_count, wide.resources.node_count) == (8, 2)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"roles__ps": 2}, "job.toml:2: parameter servers need workers"),
        ({"roles__workers": 3, "resources__gpus_total": 4}, "job.toml:2: 4 GPUs cannot be shared"),
        ({"roles__workers": 3, "nodes": 2, "resources__gpus": 3}, "job.toml:2: 3 workers cannot"),
        ({"roles__workers": 2, "resources__gpus_total": 4}, "job.toml:2: workers with several"),
        ({"roles__workers": 2, "launch": "per-gpu"}, "job.toml:3: per-gpu does not go with"),
        ({"launch": "per-gpu", "compat": "slurm"}, "job.toml:2: per-gpu is what compat"),
        ({"launch": "per-gpus"}, "job.toml:2: launch: "),
        ({"roles__workers": 0}, "job.toml:2: roles.workers: "),
        ({"workers": 3}, "write `workers` under roles"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_line(said: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        message(**said)
    assert words in str(refused.value)


def test_a_rank_of_a_per_gpu_job_is_found_on_its_node() -> None:
    spec = job_pb2.JobSpec(launch="per-gpu")
    assert stream_of("0", spec, attempt(2, 3)) == Stream(0, "rank 0")
    assert stream_of("4", spec, attempt(2, 3)) == Stream(1, "rank 4")
    with pytest.raises(InvalidRequest, match="no rank 5"):
        stream_of("5", spec, attempt(2, 3))


def test_workers_and_servers_are_found_where_the_agent_puts_them() -> None:
    spec = job_pb2.JobSpec(roles=job_pb2.RolesSpec(worker_count=4, ps_count=3))
    assert stream_of("worker:3", spec, attempt(2, 2)) == Stream(1, "worker 3")
    assert stream_of("1", spec, attempt(2, 2)) == Stream(0, "worker 1")
    assert stream_of("ps:1", spec, attempt(2, 2)) == Stream(1, "ps 1")
    with pytest.raises(InvalidRequest, match="no ps 3"):
        stream_of("ps:3", spec, attempt(2, 2))


def test_without_several_tasks_a_rank_is_a_nodes() -> None:
    assert stream_of("1", job_pb2.JobSpec(), attempt(8, 8)) == Stream(1)
    with pytest.raises(InvalidRequest, match="no roles"):
        stream_of("ps:0", job_pb2.JobSpec(), attempt(8))

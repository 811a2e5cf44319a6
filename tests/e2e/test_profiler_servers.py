"""Real parameter servers over sockets: the messages are the tensors, whoever has which."""

from pathlib import Path

import pytest

from dlq_profiler.results import Method, Pattern, TrafficConfidence
from support.model_shapes import tensors
from support.profiled_jobs import MOST_PERIOD_ERROR, server_job, timely

pytestmark = pytest.mark.e2e

MODELS = ["vgg16", "alexnet", "resnet50", "googlenet", "gpt", "inception3"]


@pytest.mark.parametrize("model", MODELS)
def test_messages_are_tensors_and_servers_are_as_uneven_as_their_tensors(
    model: str, tmp_path: Path
) -> None:
    shrunk = 8 if model == "vgg16" else 1
    sizes = tensors(model, shrunk=shrunk)
    found = timely(tmp_path, lambda where: server_job(where, model, "--shrunk", str(shrunk)))
    profile = found.profile
    assert profile.pattern is Pattern.PARAMETER_SERVER
    assert profile.processes >= 3  # a server of nothing but biases sends hardly anything
    assert profile.sizes == (Method.MESSAGES, TrafficConfidence.CHECKED, None)
    assert profile.iterations == 6
    assert profile.tensors == tuple(sorted(sizes, reverse=True))
    assert profile.skew is not None
    assert profile.skew.upper == pytest.approx(max(sizes) / sum(sizes), abs=0.001)
    held = [sum(sizes[number::2]) for number in range(2)]
    assert profile.server_skew == pytest.approx(max(held) / (sum(held) / 2), abs=0.01)
    assert profile.bytes_per_iteration == pytest.approx(2 * max(held), rel=0.01)
    assert found.period_error <= MOST_PERIOD_ERROR


def test_one_worker_and_three_servers(tmp_path: Path) -> None:
    profile = server_job(tmp_path / "rec", "resnet50", "--servers", "3", "--workers", "1").profile
    assert profile.pattern is Pattern.PARAMETER_SERVER
    assert profile.tensors == tuple(sorted(tensors("resnet50"), reverse=True))
    assert len(profile.servers) == 3

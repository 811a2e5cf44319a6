"""Real trainings by PyTorch over gloo: their traffic tells what they are."""

from pathlib import Path
from statistics import median

import pytest

from dlq_profiler.results import Method, Pattern, TrafficConfidence, TrafficReason
from support.model_shapes import buckets, tensors
from support.profiled_jobs import MOST_PERIOD_ERROR, timely, torch_job

pytestmark = [pytest.mark.e2e, pytest.mark.torch]

ITERATIONS = 8
WARM_UP, PAIRS = 4, 40
MOST_CPU_RATIO = 1.02
# Sizes divided so that a gradient is a hundred megabytes at most: the buckets stay PyTorch's own.
SHRUNK = {
    "vgg16": 8, "alexnet": 4, "gpt": 2, "googlenet": 1, "resnet50": 1, "inception3": 1,
    "resnet152": 3,
}  # fmt: skip


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("model", SHRUNK)
def test_traffic_tells_iterations_buckets_model_and_the_bounds_of_its_largest_tensor(
    model: str, ranks: int, tmp_path: Path
) -> None:
    options = ("--iterations", str(ITERATIONS), "--shrunk", str(SHRUNK[model]))
    sizes = tensors(model, shrunk=SHRUNK[model])
    found = timely(tmp_path, lambda where: torch_job(where, model, ranks, *options))
    profile = found.profile
    assert (profile.pattern, profile.processes) == (Pattern.ALL_REDUCE, ranks)
    assert profile.traffic == (Method.ADDRESSES, TrafficConfidence.CHECKED, None)
    assert profile.iterations == ITERATIONS - 1  # the first has a layout of its own
    assert profile.buckets == tuple(found.truth["buckets"])
    assert profile.model_bytes == pytest.approx(sum(sizes), rel=1e-3)
    assert profile.bytes_per_iteration == pytest.approx(
        sum(sizes) * 2 * (ranks - 1) / ranks, rel=1e-3
    )
    assert profile.largest_tensor_bytes is not None
    assert profile.largest_tensor_bytes.lower <= max(sizes) <= profile.largest_tensor_bytes.upper
    assert profile.lost == 0
    assert found.period_error <= MOST_PERIOD_ERROR


@pytest.mark.parametrize("ranks", [2, 4])
def test_three_iterations_are_too_few_and_four_are_enough(ranks: int, tmp_path: Path) -> None:
    few = torch_job(tmp_path / "3", "googlenet", ranks, "--iterations", "3").profile
    assert few.traffic.reason in (TrafficReason.TOO_FEW_ITERATIONS, TrafficReason.SELF_CHECK)
    assert few.skew is None
    enough = torch_job(tmp_path / "4", "googlenet", ranks, "--iterations", "4").profile
    assert enough.iterations == 3
    assert enough.model_bytes == sum(tensors("googlenet"))


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_job_that_runs_is_recorded_from_when_it_is_switched_on(
    ranks: int, tmp_path: Path
) -> None:
    options = ("--iterations", "14", "--record-from", "6")
    found = torch_job(tmp_path / "rec", "googlenet", ranks, *options, on=False)
    assert 6 <= found.profile.iterations <= 8
    assert found.profile.model_bytes == sum(tensors("googlenet"))
    assert found.profile.buckets == tuple(found.truth["buckets"])


def test_with_the_hook_the_tensors_are_exact(tmp_path: Path) -> None:
    sizes = tensors("googlenet")
    found = torch_job(tmp_path / "rec", "googlenet", 2, "--iterations", "5", hook=True).profile
    assert found.sizes == (Method.EXACT, TrafficConfidence.EXACT, None)
    assert found.tensors == tuple(sorted(sizes, reverse=True))
    assert found.skew is not None
    assert found.skew.lower == found.skew.upper == max(sizes) / sum(sizes)
    assert found.model_bytes == sum(sizes)
    assert found.buckets == tuple(buckets(sizes))


def test_recording_costs_at_most_two_percent_of_the_cpu(tmp_path: Path) -> None:
    """Pairs of neighbouring iterations, one recorded and one not; a median over two batches, if
    need be.
    """
    options = ("--iterations", str(WARM_UP + 2 * PAIRS), "--shrunk", "4", "--toggle")
    ratios = []
    for batch in ("1", "2"):
        found = torch_job(tmp_path / batch, "alexnet", 2, *options)
        cpu_s = found.truth["cpu_s"][WARM_UP:]
        ratios.append(median(on / off for on, off in zip(cpu_s[::2], cpu_s[1::2], strict=True)))
        assert found.profile.records > PAIRS * 100
        if ratios[-1] <= MOST_CPU_RATIO:
            return
    pytest.fail(f"the CPU time of recorded iterations over the others: {ratios}")

"""A training by PyTorch under an agent: what it tells is what the training knows of itself."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlq.v1 import agent_service_pb2 as wire
from dlq_common.text.wire import from_duration, to_duration
from support.agent_process import AgentProcess
from support.model_shapes import tensors
from support.profiled_jobs import JOBS, TORCHRUN
from support.stub_master import StubMaster, launch_command
from support.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.torch]

ITERATIONS = 8


@pytest.fixture
def master(tmp_path: Path) -> Iterator[StubMaster]:
    with StubMaster() as stub:
        agent = AgentProcess(tmp_path, stub)
        assert agent.join(stub.token()).returncode == 0
        agent.start()
        stub.wait_for(lambda: stub.hellos or None, "a hello")
        yield stub
        agent.clean_up()


def test_a_training_tells_its_true_parameters_and_its_period(
    master: StubMaster, tmp_path: Path
) -> None:
    sizes = tensors("googlenet")
    words = ("googlenet", "--iterations", str(ITERATIONS))
    # torchrun takes its ranks and its address from what dlq sets: the test names neither.
    launch = launch_command(1, str(TORCHRUN), str(JOBS / "ddp_job.py"), *words)
    launch.gpu_indexes[:] = [0, 1]
    launch.profile.window_duration.CopyFrom(to_duration(600.0))
    master.command(launch)
    wait_until(lambda: master.evidence, what="evidence", timeout_s=300.0)
    ended = master.report("1", wire.RANK_PHASE_EXITED)
    master.command(wire.OpenLogCommand(relay_id="1", job_id="1", fence=ended.fence))
    pieces = master.wait_for(
        lambda: p if (p := master.logs.get("1", [])) and p[-1].end else None, "the log"
    )
    said = b"".join(piece.data for piece in pieces).decode()
    assert ended.exit_code == 0, said
    truth = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
    told = master.evidence[0]
    assert (told.pattern, told.process_count, told.rank_count) == ("all-reduce", 2, 2)
    assert (told.traffic.method, told.traffic.confidence) == ("address-recurrence", "checked")
    assert (told.sizes.method, told.sizes.confidence) == ("framework", "exact")
    assert told.model_bytes == sum(sizes)
    assert told.largest_tensor_low_bytes == told.largest_tensor_high_bytes == max(sizes)
    assert told.iteration_count == ITERATIONS - 1
    assert told.bytes_per_iteration == pytest.approx(sum(truth["buckets"]), rel=1e-3)
    # Nothing on a clock of a busy host is compared here: tests of the analysis do.
    assert from_duration(told.period_duration) > 0

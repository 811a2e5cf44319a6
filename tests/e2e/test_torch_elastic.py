"""A PyTorch job under torchrun grows over a second node, gives it back, and has done each of its
steps once.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlq.v1 import job_pb2
from support.framework_trial import PLAIN, make_out
from support.step_log import runs_on, steps, worlds
from support.users_view import UsersView

from cluster import Cluster  # isort: skip  # the examples are scripts, not packages
from quick import quick  # isort: skip

pytestmark = [pytest.mark.e2e, pytest.mark.torch]

SILENCE = 'ttl = "6s"\nunreachable = "10s"'
SETTINGS = quick(lease=SILENCE, settings=', cooldown_s = "30"')
NODES = ("e2e-a", "e2e-b")
STEPS = 400
ELASTIC = ("-N", "1", "--gpus-per-node", "2", "--elastic", "2:4")
WIDE = ("--gpus", "14")
FOR_EVER = ("--", sys.executable, "-c", "import time; time.sleep(3600)")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, settings=SETTINGS, nodes=NODES) as running:
        yield running


def test_it_grows_and_shrinks_and_ends_with_all_its_steps_done_once(
    user: UsersView, tmp_path: Path
) -> None:
    out, unhurried = make_out(tmp_path)
    log = tmp_path / "steps"
    words = PLAIN.command(
        out, "--global-batch", "64", "--step-log", str(log), "--save-every", "1000",
        "--unhurried-while", str(unhurried), torchrun=("--max-restarts", "0"),
    )  # fmt: skip
    first = user.submit(*WIDE, *FOR_EVER)
    user.wait(first, lambda now: bool(now.node_ids), "the other job runs")
    job = user.submit(
        "-J", "elastic-ddp", *ELASTIC,
        "--checkpoint-preset", "torchrun", "--checkpoint-dir", str(out),
        "--checkpoint-marker", "ckpt-*.pt", "-D", str(tmp_path), "--", *words,
    )  # fmt: skip
    user.wait(job, lambda now: runs_on(now, 2) and steps(log) != [], "it trains on its base")

    user.dlq("cancel", first)
    user.wait(job, lambda now: runs_on(now, 4) and worlds(log) == [2, 4], "it has grown")
    assert "2,4" in user.dlq("status")
    shown = user.show(job)
    assert (shown["elastic"]["current_gpu_count"], shown["elastic"]["base_gpu_count"]) == (4, 2)

    second = user.submit(*WIDE, *FOR_EVER)
    user.wait(job, lambda now: runs_on(now, 2) and worlds(log) == [2, 4, 2], "it has shrunk")
    user.wait(second, lambda now: bool(now.node_ids), "the other has got its GPUs")
    user.dlq("cancel", second)
    unhurried.unlink()

    assert user.wait_for_end(job).state == job_pb2.JOB_STATE_COMPLETED, user.tale(job)
    assert steps(log) == list(range(1, STEPS + 1)), "each once, in order"
    assert user.show(job)["lost_gpu_seconds"] == 0
    resized = [each["data"] for each in user.events(job) if each["kind"] == "job_resized"]
    assert [(each["from"], each["to"]) for each in resized][:2] == [("2", "4"), ("4", "2")]

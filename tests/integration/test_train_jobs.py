"""Example jobs that are stopped, killed and resumed end with the same bytes as undisturbed ones."""

import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.extent import spread, times
from support.training_attempts import TrainingJob

pytestmark = pytest.mark.integration

MakeJob = Callable[..., TrainingJob]

STEPS = times(300, 600)
COMMON = ["--steps", str(STEPS), "--save-every", "25"]
JOBS = {
    "softmax.py": ["--batch", "64"],
    "mlp.py": ["--batch", "128", "--hidden", "128"],
    "convnet.py": ["--batch", "32", "--channels", "4"],
    "ensemble.py": ["--batch", "64", "--members", "8"],
    "kmeans.py": ["--batch", "512", "--clusters", "100"],
}


@pytest.fixture
def training_job() -> Iterator[MakeJob]:
    """Makes jobs, and leaves none of their processes behind."""
    made: list[TrainingJob] = []

    def make(root: Path, script: str, arguments: list[str], *, nnodes: int = 1) -> TrainingJob:
        made.append(TrainingJob(root, script, arguments, nnodes))
        return made[-1]

    yield make
    for job in made:
        job.abandon()


@pytest.mark.parametrize("script", spread(list(JOBS), 1))
def test_a_job_stopped_at_any_step_ends_as_if_it_never_was(
    training_job: MakeJob, script: str, tmp_path: Path
) -> None:
    job = training_job(tmp_path / "stopped", script, [*COMMON, *JOBS[script]])
    chance = random.Random(script)
    stops = [
        (5, signal.SIGUSR1, 99),
        (60, signal.SIGKILL, -signal.SIGKILL),
        (120, signal.SIGTERM, 99),
        (200, signal.SIGKILL, -signal.SIGKILL),
    ]
    for earliest, number, code in stops[: times(2, 4)]:
        job.start()
        job.run_to(earliest + chance.randrange(40))
        job.kill(0, number)
        assert job.end() == [code]
        assert not job.done
    job.start()
    assert job.end() == [0]
    assert job.done

    undisturbed = training_job(tmp_path / "undisturbed", script, [*COMMON, *JOBS[script]])
    undisturbed.start()
    assert undisturbed.end() == [0]
    assert job.loss_log.count(b"\n") == STEPS
    assert job.loss_log == undisturbed.loss_log
    assert job.weights == undisturbed.weights


def test_a_notice_stops_a_job_after_its_next_look(training_job: MakeJob, tmp_path: Path) -> None:
    job = training_job(tmp_path / "job", "mlp.py", ["--steps", "100000"])
    job.start()
    job.run_to(10)
    job.notify()
    assert job.end() == [99]
    assert job.newest_step() >= 10


def test_a_finished_job_that_is_run_again_changes_nothing(
    training_job: MakeJob, tmp_path: Path
) -> None:
    job = training_job(
        tmp_path / "job", "mlp.py", ["--steps", "50", "--save-every", "50", "--hidden", "8"]
    )
    job.start()
    assert job.end() == [0]
    before = (job.loss_log, job.weights)
    job.start()
    assert job.end() == [0]
    assert (job.loss_log, job.weights) == before


DDP = ["--steps", "400", "--save-every", "40", "--hidden", "64"]


@pytest.mark.long(
    "integration/test_train_jobs.py::test_a_job_stopped_at_any_step_ends_as_if_it_never_was"
)
def test_two_nodes_stop_at_the_same_step_and_end_as_if_they_never_had(
    training_job: MakeJob, tmp_path: Path
) -> None:
    job = training_job(tmp_path / "stopped", "ddp_mlp.py", DDP, nnodes=2)
    job.start()
    job.run_to(30)
    job.kill(1, signal.SIGTERM)  # only one of them hears of it
    assert job.end() == [99, 99]
    job.start()
    job.run_to(130)
    job.kill(0, signal.SIGUSR1)
    assert job.end() == [99, 99]
    job.start()
    assert job.end() == [0, 0]

    undisturbed = training_job(tmp_path / "undisturbed", "ddp_mlp.py", DDP, nnodes=2)
    undisturbed.start()
    assert undisturbed.end() == [0, 0]
    assert job.loss_log == undisturbed.loss_log
    assert job.weights == undisturbed.weights


@pytest.mark.parametrize("killed", spread([0, 1], 1))
def test_a_node_that_dies_ends_the_other_with_an_error(
    training_job: MakeJob, tmp_path: Path, killed: int
) -> None:
    job = training_job(tmp_path / "job", "ddp_mlp.py", [*DDP[2:], "--steps", "1000000"], nnodes=2)
    job.start()
    job.run_to(60)
    job.kill(killed)
    codes = job.end()
    assert codes[killed] == -signal.SIGKILL
    assert codes[1 - killed] == 1
    assert job.newest_step() >= 40

"""Hosts whose wall clocks are wrong: real daemons, each with a clock of its own
(tests/support/shifted_clock.c).
"""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlq.v1 import job_pb2
from dlq_cli.words import shown_state
from dlq_client.jobs import Jobs
from support.harness import BIN, Daemons
from support.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long(
        "unit/master/test_start_clock.py",
        "unit/master/store/test_store_clock_reset.py",
    ),
]

SHIM = Path(__file__).parents[1] / "support" / "shifted_clock.c"
DAY_S = 86_400
YEAR_S = 365 * DAY_S


@pytest.fixture(scope="module")
def shifted(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The preload library."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    library = tmp_path_factory.mktemp("clock") / "shifted_clock.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, SHIM], check=True)
    return str(library)


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[Daemons]:
    with Daemons(tmp_path, ("n1",)).up() as made:
        yield made


def reset_clock(daemons: Daemons) -> str:
    config = str(daemons.root / "master.toml")
    command = [str(BIN / "dlq-master"), "reset-clock", "-y", "--config", config]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def other_boot(daemons: Daemons) -> None:
    """What the next master finds is from before the host was booted, so its wall clock is all that
    there is.
    """
    code = (
        "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.execute('DELETE FROM meta "
        "WHERE key=?', ['clock']); db.commit()"
    )
    database = daemons.root / "master" / "dlq.db"
    subprocess.run([BIN / "python", "-c", code, database], check=True)


def is_running(jobs: Jobs, job_id: str) -> bool:
    return shown_state(jobs.get(job_id).job) == "running"


def a_limited_job(daemons: Daemons) -> job_pb2.JobSpec:
    spec = job_pb2.JobSpec(name="limited", command=["/bin/sleep", "600"], working_directory="/tmp")
    spec.resources.gpu_count = 1
    spec.time_limit_duration.FromSeconds(3600)
    return spec


def test_a_wall_clock_set_ahead_does_not_move_the_axis_within_a_boot(
    daemons: Daemons, shifted: str
) -> None:
    with daemons.connect() as line:
        job_id = Jobs(line).submit(a_limited_job(daemons)).job.job_id
        wait_until(lambda: is_running(Jobs(line), job_id), what="it runs")
    daemons.kill("master")
    daemons.start("master", LD_PRELOAD=shifted, CLOCK_SHIFT=str(YEAR_S))
    daemons.wait_for("master")
    daemons.kill("master")
    daemons.start("master")
    daemons.wait_for("master")
    with daemons.connect() as line:
        jobs = Jobs(line)
        wait_until(lambda: is_running(jobs, job_id), what="it runs as before")
        assert len(jobs.get(job_id).attempts) == 1


def test_a_master_that_ran_a_year_ahead_is_refused_until_its_database_is_corrected(
    daemons: Daemons, shifted: str
) -> None:
    with daemons.connect() as line:
        before = Jobs(line).submit(a_limited_job(daemons)).job.job_id
        wait_until(lambda: is_running(Jobs(line), before), what="it runs")
    daemons.stop("master")
    daemons.stop("n1")
    other_boot(daemons)
    # An operator who believes that clock, at first.
    subprocess.run(
        [BIN / "dlq-master", "reset-clock", "-y", "--config", daemons.root / "master.toml"],
        env={"LD_PRELOAD": shifted, "CLOCK_SHIFT": str(YEAR_S)}, check=True, capture_output=True,
    )  # fmt: skip
    daemons.start("master", LD_PRELOAD=shifted, CLOCK_SHIFT=str(YEAR_S))
    daemons.wait_for("master")
    daemons.stop("master")

    daemons.start("master")
    daemons.wait_for_failure("master")
    assert "one of the two is wrong" in daemons.log("master")
    assert "dlq-master reset-clock" in daemons.log("master")
    said = reset_clock(daemons)
    assert "went back by" in said
    daemons.start("master")
    daemons.wait_for("master")
    daemons.start("n1")
    daemons.wait_for("n1")
    with daemons.connect() as line:
        jobs = Jobs(line)
        wait_until(lambda: is_running(jobs, before), what="it runs as before")
        assert len(jobs.get(before).attempts) == 1
        after = jobs.submit(a_limited_job(daemons)).job
        told = list(jobs.events(after.job_id))
        earlier = jobs.get(before).job
    assert abs(after.submit_time.seconds - earlier.submit_time.seconds) < DAY_S
    assert told


def test_an_agent_and_a_client_with_another_clock_get_through_or_are_told_that_it_is_the_clock(
    daemons: Daemons, shifted: str
) -> None:
    for shift_s in (-YEAR_S, DAY_S):
        get_through(daemons, {"LD_PRELOAD": shifted, "CLOCK_SHIFT": str(shift_s)})
    are_told(daemons, {"LD_PRELOAD": shifted, "CLOCK_SHIFT": str(YEAR_S)})


def get_through(daemons: Daemons, wrong: dict[str, str]) -> None:
    daemons.stop("n1")
    daemons.start("n1", **wrong)
    daemons.wait_for("n1")
    done = subprocess.run(
        [BIN / "dlq", "status"], env=daemons.environment() | wrong, capture_output=True, text=True, check=False  # noqa: E501
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def are_told(daemons: Daemons, wrong: dict[str, str]) -> None:
    done = subprocess.run(
        [BIN / "dlq", "status"], env=daemons.environment() | wrong, capture_output=True, text=True, check=False  # noqa: E501
    )  # fmt: skip
    assert "the clock of this host" in done.stderr
    assert done.returncode != 0
    daemons.stop("n1")
    daemons.start("n1", **wrong)
    wait_until(
        lambda: "the clock of this host says" in daemons.log("n1"), what="it blames the clock"
    )

"""Real submitit, which finds Slurm where there is none: it submits, is preempted, and gets its result."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster import Cluster
from support.framework_trial import EXAMPLES, PYTHON, TRAINING, Trained, Undisturbed
from support.users_view import UsersView
from support.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.frameworks]


@contextmanager
def submitting(
    cluster: Cluster, directory: Path, *arguments: str
) -> Iterator["subprocess.Popen[str]"]:
    """The user's own program on a host that submits, with the stand-ins first in its PATH."""
    programs = cluster.dlq("slurm", "install", str(directory / "slurm")).strip()
    here = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
    environment = {**here, **cluster.client_environment, "PATH": f"{programs}:{os.environ['PATH']}"}
    command = [str(PYTHON), "submitit_digits.py", *arguments]
    with (
        (directory / "driver.txt").open("wb") as errors,
        subprocess.Popen(
            command, cwd=EXAMPLES, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as driver,
    ):
        try:
            yield driver
        finally:
            driver.kill()


def test_submitit_stores_its_call_anew_requeues_and_returns_the_same_weights(
    cluster: Cluster, user: UsersView, tmp_path: Path
) -> None:
    out, logs = tmp_path / "out", tmp_path / "logs"
    out.mkdir()
    where = ("--out", str(out), "--log", str(logs), "--gpus", "8")
    with (
        Undisturbed(
            tmp_path / "undisturbed", "submitit_digits.py", "--here", "--log", "none", *TRAINING
        ) as undisturbed,
        submitting(cluster, tmp_path, *where, *TRAINING) as driver,
    ):
        assert driver.stdout is not None
        job = driver.stdout.readline().strip()
        assert job, (tmp_path / "driver.txt").read_text()
        trained = Trained(user, job, output=logs / f"{job}_0_log.out")
        trained.wait_for_start(1)
        wait_until((out / "newest.pt").exists, what="it saves", timeout_s=120.0)
        trained.push_away()
        trained.wait_for_start(2)
        trained.pause_and_resume()
        shown = trained.end()
        result = driver.communicate(timeout=120)[0].strip()
        assert driver.returncode == 0, (tmp_path / "driver.txt").read_text()
        assert result + "\n" == undisturbed.digest()

    assert shown["name"] == "digits"
    assert trained.attempts() == [
        ("preempted", "preempt", 99),
        ("preempted", "pause", 99),
        ("succeeded", None, 0),
    ]
    first, second, third = trained.begins()
    assert 0 == first < second <= third


def test_what_submitit_asks_of_slurm_is_answered(
    cluster: Cluster, user: UsersView, tmp_path: Path
) -> None:
    programs = Path(cluster.dlq("slurm", "install", str(tmp_path / "slurm")).strip())

    def slurm(program: str, *arguments: str) -> str:
        return subprocess.run(
            [programs / program, *arguments],
            env={**os.environ, **cluster.client_environment},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    said = slurm("sbatch", "--job-name=asked", "--wrap", "echo $SLURM_JOB_NAME; sleep 600")
    job = said.removeprefix("Submitted batch job ").strip()
    user.wait(job, lambda now: now.HasField("start_time"), "it runs")
    assert slurm("sacct", "-o", "JobID,State,NodeList", "--parsable2", "-j", job).splitlines() == [
        "JobID|State|NodeList",
        f"{job}|RUNNING|{user.show(job)['nodes'][0]}",
    ]
    assert slurm("squeue", "-h", "-j", job, "-o", "%i %j %t") == f"{job} asked R\n"
    assert "JobState=RUNNING" in slurm("scontrol", "show", "job", job)
    slurm("scancel", job)
    user.wait_for_end(job)
    assert slurm("sacct", "-n", "-P", "-j", job, "-o", "State") == "CANCELLED\n"
    assert slurm("squeue", "-h", "-j", job) == ""

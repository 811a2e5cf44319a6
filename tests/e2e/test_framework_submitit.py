"""Real submitit, which finds Slurm where there is none: it submits, is preempted, and gets its
result.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster import Cluster
from support.framework_trial import EXAMPLES, PYTHON, SUBMITIT, Trained, Undisturbed, make_out
from support.users_view import UsersView

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
    cluster: Cluster, user: UsersView, tmp_path: Path, undisturbed: Undisturbed
) -> None:
    logs = tmp_path / "logs"
    out, unhurried = make_out(tmp_path)
    where = ("--out", str(out), "--log", str(logs), "--gpus", "8")
    with submitting(
        cluster, tmp_path, *where, *SUBMITIT.size, "--unhurried-while", str(unhurried)
    ) as driver:
        assert driver.stdout is not None
        job = driver.stdout.readline().strip()
        assert job, (tmp_path / "driver.txt").read_text()
        trained = Trained(user, job, unhurried=unhurried, output=logs / f"{job}_0_log.out")
        trained.wait_for_start(1)
        user.wait(job, lambda _: (out / "newest.pt").exists(), "it saves")
        trained.push_away()
        trained.wait_for_start(2)
        trained.pause()
        trained.hurry()
        trained.resume()
        shown = trained.end()
        result = driver.communicate()[0].strip()
        assert driver.returncode == 0, (tmp_path / "driver.txt").read_text()

    assert shown["name"] == "digits"
    assert trained.attempts() == [
        ("preempted", "preempt", 99),
        ("preempted", "pause", 99),
        ("succeeded", None, 0),
    ]
    first, second, third = trained.begins()
    assert 0 == first < second <= third
    assert result + "\n" == undisturbed.digest(SUBMITIT, "--here", "--log", "none")
    # The call as it was submitted got its name when the job ran already, and is no save.
    events = user.events(job)
    of_first = [each["kind"] for each in events if each["attempt"] == 1]
    assert of_first.index("attempt_stop_requested") < of_first.index("attempt_committed")


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

    said = slurm("sbatch", "--job-name=asked", "-G1", "--wrap", "echo $SLURM_JOB_NAME; sleep 600")
    job = said.removeprefix("Submitted batch job ").strip()
    user.wait(job, lambda now: now.HasField("start_time"), "it runs")
    assert slurm("sacct", "-o", "JobID,State,NodeList", "--parsable2", "-j", job).splitlines() == [
        "JobID|State|NodeList",
        f"{job}|RUNNING|{user.show(job)['nodes'][0]}",
        f"{job}.batch|RUNNING|{user.show(job)['nodes'][0]}",
    ]
    assert slurm("squeue", "-h", "-j", job, "-o", "%i %j %t") == f"{job} asked R\n"
    assert "JobState=RUNNING" in slurm("scontrol", "show", "job", job)
    slurm("scancel", job)
    user.wait_for_end(job)
    assert slurm("sacct", "-X", "-n", "-P", "-j", job, "-o", "State").startswith("CANCELLED")
    assert slurm("squeue", "-h", "-j", job) == ""

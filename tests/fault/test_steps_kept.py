"""Records of steps on real daemons that die or fall silent; jobs that write nonsense instead."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.harness import Daemons
from support.waiting import wait_until

pytestmark = pytest.mark.integration
LONG_TEST = pytest.mark.long("unit/nodeagent/test_core_steps.py")
DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    root = Path(tmp_path_factory.mktemp("steps"))
    root.chmod(0o755)
    with Daemons(root, ("n1", "n2")).up() as made:
        yield made


def batch(daemons: Daemons, tmp_path: Path, script: str, *options: str) -> str:
    path = tmp_path / "job.sh"
    path.write_text(f"#!/bin/sh\ncd {tmp_path}\n{script}")
    words = ("slurm", "sbatch", "--parsable", "-G1", "-o", "/dev/null", *options, str(path))
    return daemons.said(*words).strip()


def steps(daemons: Daemons, job: str, fields: str = "JobID,JobName,State,ExitCode") -> list[str]:
    """sacct's lines of the steps of a job, without the job's own."""
    said = daemons.said("slurm", "sacct", "-nP", "-j", job, "-o", fields)
    return [line.removeprefix(f"{job}.") for line in said.splitlines()[1:]]


def until(daemons: Daemons, job: str, wanted: list[str]) -> None:
    try:
        wait_until(lambda: steps(daemons, job) == wanted, what="steps", timeout_s=DEADLINE_S)
    except AssertionError:
        assert steps(daemons, job) == wanted
        raise


def restarted(daemons: Daemons, name: str) -> None:
    daemons.kill(name)
    daemons.start(name)
    daemons.wait_for(name)


BEGUN = ["batch|batch|RUNNING|0:0", "0|good|COMPLETED|0:0", "1|bad|FAILED|3:0"]
LONG = """\
srun -J good true
srun -J bad sh -c 'exit 3'
srun -J long sh -c 'until [ -e go ]; do sleep 0.1; done'
"""
OVER = ["batch|batch|COMPLETED|0:0", *BEGUN[1:], "2|long|COMPLETED|0:0"]


def test_steps_are_known_through_the_deaths_of_the_master_and_the_agent(
    daemons: Daemons, tmp_path: Path
) -> None:
    job = batch(daemons, tmp_path, LONG, "-N1", "-w", "n1")
    running = [*BEGUN, "2|long|RUNNING|0:0"]
    until(daemons, job, running)
    assert (
        daemons.said("slurm", "squeue", "-hs", f"{job}.2", "-o", "%i %j %N") == f"{job}.2 long n1\n"
    )
    assert daemons.said("slurm", "sstat", "-nP", "-j", job, "-o", "JobID,NTasks") == f"{job}.2|1\n"
    restarted(daemons, "master")
    assert steps(daemons, job) == running, "from its disk, before anybody has told it again"
    restarted(daemons, "n1")
    until(daemons, job, running)
    daemons.kill("n1")
    (tmp_path / "go").touch()
    daemons.kill("master")
    daemons.start("master")
    daemons.wait_for("master")
    assert steps(daemons, job) == running, "the last word of a node that is away"
    daemons.start("n1")
    assert daemons.dlq("wait", job).code == 0
    until(daemons, job, OVER)
    restarted(daemons, "master")
    assert steps(daemons, job) == OVER
    measured = steps(daemons, job, "JobID,MaxRSS,TotalCPU")
    assert all(line.split("|")[1] for line in measured), "the script and all steps"


@LONG_TEST
def test_a_silent_node_has_said_its_last_word(daemons: Daemons, tmp_path: Path) -> None:
    job = batch(daemons, tmp_path, LONG, "-N1", "-w", "n2")
    running = [*BEGUN, "2|long|RUNNING|0:0"]
    until(daemons, job, running)
    daemons.freeze("n2")
    try:
        (tmp_path / "go").touch()
        wait_until(
            lambda: "unreachable" in daemons.said("nodes"), what="n2 is silent", timeout_s=60.0
        )
        assert steps(daemons, job) == running
    finally:
        daemons.thaw("n2")
    assert daemons.dlq("wait", job).code == 0
    until(daemons, job, OVER)


@LONG_TEST
def test_each_attempt_has_steps_of_its_own(daemons: Daemons, tmp_path: Path) -> None:
    script = 'srun -J $SLURM_RESTART_COUNT. true\n[ -n "$SLURM_RESTART_COUNT" ] || exit 99\n'
    job = batch(daemons, tmp_path, script)
    assert daemons.dlq("wait", job).code == 0
    until(daemons, job, ["batch|batch|COMPLETED|0:0", "0|1.|COMPLETED|0:0"])
    (shown,) = json.loads(daemons.said("show", job, "--json"))["jobs"]
    told = [(each["attempt"], each["steps"][0]["name"]) for each in shown["steps"]]
    assert told == [(1, "."), (2, "1.")]


def test_what_still_runs_at_the_end_of_its_job_was_cancelled(
    daemons: Daemons, tmp_path: Path
) -> None:
    """The script's own child, which nobody lets go in order: its end is the job's."""
    job = batch(daemons, tmp_path, "srun -J left sleep 600")
    until(daemons, job, ["batch|batch|RUNNING|0:0", "0|left|RUNNING|0:0"])
    daemons.said("cancel", "--kill", job)
    assert daemons.dlq("wait", job).code != 0
    wait_until(
        lambda: [line.split("|")[2] for line in steps(daemons, job)] == ["CANCELLED"] * 2,
        what="all is cancelled",
        timeout_s=DEADLINE_S,
    )
    assert steps(daemons, job, "End")[0] != "Unknown"


ATTACK = r"""
d=$(dirname $DLQ_BEAT_FILE)
srun -J honest true
until grep -q ended $d/steps; do sleep 0.1; done
sleep 3
put() { rm -rf $d/steps; "$@"; sleep 3; }
put ln -s /etc/passwd $d/steps
put mkfifo $d/steps
put mkdir $d/steps
put sh -c "head -c 30000000 /dev/zero > $d/steps"
put sh -c "printf 'dlq-steps\t1\t0\t0\n-1\tx\t1\t1\tended\t0\t1\t1\t0\t0\tn\n' > $d/steps"
put sh -c "printf 'dlq-steps\t1\t0\t0\n0\t\033[2J\t1\t1\tended\t0\t1\t1\t0\t0\tn\n' > $d/steps"
put sh -c "head -c 300000 /dev/urandom > $d/steps"
touch refused
until [ -e go ]; do sleep 0.1; done
rm -f $d/steps
printf 'dlq-steps\t1\t5\t2\n8\tforged\t1\t1\tended\t0\t1\t1\t0\t0\tnowhere\n' > $d/steps
until [ -e end ]; do sleep 0.1; done
"""


def test_nonsense_of_a_job_harms_nobody_and_its_lies_are_its_own(
    daemons: Daemons, tmp_path: Path
) -> None:
    job = batch(daemons, tmp_path, ATTACK)
    honest = ["batch|batch|RUNNING|0:0", "0|honest|COMPLETED|0:0"]
    until(daemons, job, honest)
    wait_until((tmp_path / "refused").exists, what="all nonsense is written", timeout_s=DEADLINE_S)
    assert steps(daemons, job) == honest, "the last good list stays"
    assert "steps_refused" in daemons.log("n1") + daemons.log("n2")
    (tmp_path / "go").touch()
    until(daemons, job, ["batch|batch|RUNNING|0:0", "8|forged|COMPLETED|0:0"])
    (tmp_path / "end").touch()
    assert daemons.dlq("wait", job).code == 0
    until(daemons, job, ["batch|batch|COMPLETED|0:0", honest[1]])  # written anew at the end
    assert daemons.is_alive("n1")
    assert daemons.is_alive("n2")

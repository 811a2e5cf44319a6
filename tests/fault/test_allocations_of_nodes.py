"""Allocations and steps over two nodes, on real daemons that restart meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlq_cli.words import shown_state
from dlq_client.jobs import Jobs
from support.harness import BIN, Daemons
from support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.long("unit/compat/test_steps.py")]
DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    """A master, and two nodes with eight virtual GPUs each."""
    made = Daemons(tmp_path_factory.mktemp("nodes"), ("n1", "n2"))
    with made.up():
        yield made


def run(daemons: Daemons, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return daemons.ran(str(BIN / "dlq"), "slurm", *words, stdin=stdin, timeout_s=DEADLINE_S)


def batch(daemons: Daemons, tmp_path: Path, script: str, *options: str) -> tuple[str, Path]:
    """The id of a job with this script on both nodes, and its output file."""
    path, out = tmp_path / "job.sh", tmp_path / "out"
    path.write_text(f"#!/bin/sh\n{script}")
    words = ("sbatch", "--parsable", "-N2", "-G2", "-o", str(out), "-D", str(tmp_path), *options)
    done = run(daemons, *words, str(path))
    assert done.returncode == 0, done.stderr
    return done.stdout.decode().strip(), out


def state_of(daemons: Daemons, job: str) -> str:
    with daemons.connect() as line:
        return shown_state(Jobs(line).get(job).job)


def until_it_runs(daemons: Daemons, job: str) -> None:
    wait_until(
        lambda: state_of(daemons, job) == "running", what=f"{job} runs", timeout_s=DEADLINE_S
    )


def ended(daemons: Daemons, job: str) -> str:
    """The job's final state."""
    states = ("completed", "failed", "cancelled", "timed_out")
    wait_until(lambda: state_of(daemons, job) in states, what=f"{job} ends", timeout_s=DEADLINE_S)
    return state_of(daemons, job)


NAMED = "echo $SLURM_PROCID of $SLURM_NTASKS on $SLURMD_NODENAME"


def test_srun_has_a_task_on_each_node(daemons: Daemons) -> None:
    done = run(daemons, "srun", "-N2", "-G2", "sh", "-c", NAMED)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.decode().splitlines()) == ["0 of 2 on n1", "1 of 2 on n2"]


def test_stdin_reaches_all_tasks_and_the_first_failure_is_told(daemons: Daemons) -> None:
    done = run(daemons, "srun", "-N2", "-G2", "-l", "cat", stdin=b"hi\n")
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, [b"0: hi", b"1: hi"])
    done = run(daemons, "srun", "-N2", "-G2", "sh", "-c", "exit $((3 * SLURM_PROCID))")
    assert done.returncode == 3
    assert done.stderr == b"srun: error: n2: task 1: Exited with exit code 3\n"


def test_salloc_gives_both_nodes_to_the_steps_of_its_command(daemons: Daemons) -> None:
    steps = f"dlq slurm srun -l sh -c '{NAMED}'; dlq slurm srun -N1 -n1 -w n2 hostname > /dev/null"
    path = f"PATH={BIN}:$PATH"
    done = run(daemons, "salloc", "-N2", "-G2", "sh", "-c", f"{path}; {steps}; echo $SLURM_NNODES")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.decode().splitlines()) == ["0: 0 of 2 on n1", "1: 1 of 2 on n2", "2"]


def test_a_script_runs_once_and_its_steps_on_both_nodes(daemons: Daemons, tmp_path: Path) -> None:
    job, out = batch(daemons, tmp_path, f"echo script $SLURMD_NODENAME\nsrun -l sh -c '{NAMED}'\n")
    assert ended(daemons, job) == "completed"
    assert sorted(out.read_text().splitlines()) == [
        "0: 0 of 2 on n1", "1: 1 of 2 on n2", "script n1",
    ]  # fmt: skip


def test_a_step_goes_on_while_agents_and_master_restart(daemons: Daemons, tmp_path: Path) -> None:
    script = "srun sh -c 'until [ -e go ]; do sleep 0.1; done; echo went $SLURM_PROCID'\n"
    job, out = batch(daemons, tmp_path, script)
    until_it_runs(daemons, job)
    for name in ("n1", "n2", "master"):
        daemons.kill(name)
        daemons.start(name)
        daemons.wait_for(name)
    (tmp_path / "go").touch()
    assert ended(daemons, job) == "completed"
    assert sorted(out.read_text().splitlines()) == ["went 0", "went 1"]


def test_a_cancel_ends_the_steps_of_all_nodes(daemons: Daemons, tmp_path: Path) -> None:
    script = "srun sh -c 'echo $$ > pid$SLURM_PROCID; exec sleep 600'\necho goes on\n"
    job, out = batch(daemons, tmp_path, script)
    pids = [tmp_path / "pid0", tmp_path / "pid1"]
    wait_until(lambda: all(p.exists() and p.read_text() for p in pids), what="both tasks run")
    assert run(daemons, "scancel", job).returncode == 0
    assert ended(daemons, job) == "cancelled"
    assert "goes on" not in out.read_text()
    wait_until(
        lambda: not any(Path(f"/proc/{p.read_text().strip()}").exists() for p in pids),
        what="no task is left", timeout_s=DEADLINE_S,
    )  # fmt: skip


def test_a_rank_that_dies_ends_the_job(daemons: Daemons, tmp_path: Path) -> None:
    script = "srun sh -c 'echo $PPID > guard$SLURM_PROCID; exec sleep 600'\n"
    job, _ = batch(daemons, tmp_path, script, "--no-requeue")
    guard = tmp_path / "guard1"
    wait_until(lambda: guard.exists() and guard.read_text(), what="the second task runs")
    holder = Path(f"/proc/{guard.read_text().strip()}/stat").read_text().rsplit(")", 1)[1].split()
    os.kill(int(holder[1]), signal.SIGKILL)
    assert ended(daemons, job) == "failed"


def test_a_listener_from_outside_joins_a_step(daemons: Daemons, tmp_path: Path) -> None:
    script = (
        "srun -n1 -N1 sh -c 'echo up; until [ -e go ]; do sleep 0.1; done; echo last; exit 4'\n"
    )
    job, _ = batch(daemons, tmp_path, script)
    until_it_runs(daemons, job)
    layout = ("sattach", "--layout", f"{job}.0")
    wait_until(lambda: run(daemons, *layout).returncode == 0, what="the step runs")
    with daemons.begun(
        str(BIN / "dlq"), "slurm", "sattach", f"{job}.0", stdin=subprocess.DEVNULL
    ) as listener:
        shown = run(daemons, *layout).stdout.decode()
        assert shown.startswith("Job step layout:\n\t1 tasks, 1 nodes (n1)\n")
        time.sleep(1)
        (tmp_path / "go").touch()
        output, _ = listener.communicate(timeout=DEADLINE_S)
    assert (listener.returncode, output) == (4, b"last\n")
    assert run(daemons, "sattach", "999.0").returncode == 1


def test_a_step_is_cancelled_from_outside(daemons: Daemons, tmp_path: Path) -> None:
    script = "srun -n1 -N1 sh -c 'touch up; exec sleep 600'; echo step $?\n"
    job, out = batch(daemons, tmp_path, script)
    wait_until((tmp_path / "up").exists, what="the step runs", timeout_s=DEADLINE_S)
    assert run(daemons, "scancel", f"{job}.7").returncode == 225
    assert run(daemons, "scancel", f"{job}.0").returncode == 0
    assert ended(daemons, job) == "completed"
    assert "step 143" in out.read_text()


def test_scripts_that_never_use_the_other_node_end_on_both(
    daemons: Daemons, tmp_path: Path
) -> None:
    jobs = [batch(daemons, tmp_path, script)[0] for script in ("true", "sleep 1", "exit 3")]
    assert [ended(daemons, job) for job in jobs] == ["completed", "completed", "failed"]


def test_the_agent_ends_a_node_that_never_hears_of_the_first(
    daemons: Daemons, tmp_path: Path
) -> None:
    """The process that would hear of it is killed just before."""
    job, _ = batch(daemons, tmp_path, "touch up; until [ -e go ]; do sleep 0.1; done")
    wait_until((tmp_path / "up").exists, what="the script runs", timeout_s=DEADLINE_S)
    holders = subprocess.run(
        ["pgrep", "-f", f"{daemons.root}/n2/.*--hold"], capture_output=True, text=True, check=True
    )
    children = subprocess.run(
        ["pgrep", "-P", holders.stdout.split()[0]], capture_output=True, text=True, check=False
    )
    for child in children.stdout.split():
        os.kill(int(child), signal.SIGKILL)
    (tmp_path / "go").touch()
    assert ended(daemons, job) == "completed"


def test_the_script_that_asks_for_a_warning_is_warned_and_not_its_step(
    daemons: Daemons, tmp_path: Path
) -> None:
    """The usual way to queue a job again before its time limit."""
    script = (
        "trap 'echo warned; scontrol requeue $SLURM_JOB_ID' USR1\n"
        '[ -z "$SLURM_RESTART_COUNT" ] || exit 0\n'
        "srun -N1 -n1 sleep 600 & wait; wait; echo goes on\n"
    )
    job, out = batch(daemons, tmp_path, script, "-t", "2", "--signal=B:USR1@115")
    assert ended(daemons, job) == "completed"
    assert "warned" in out.read_text()
    with daemons.connect() as line:
        assert Jobs(line).get(job).job.attempt_count == 2

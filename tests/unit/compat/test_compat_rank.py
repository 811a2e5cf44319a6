"""What a script for Slurm finds in a rank: steps, signals for them, and a requeue that is no
failure.
"""

import signal
from typing import IO

import pytest

from support.extent import spread
from unit.compat.conftest import Rank

# A task that says that it is ready, and what it does when it is told to save.
SAVES = "trap '{then}' USR1; echo ready; while :; do sleep 0.05; done"


def wait_for(output: IO[str] | None, line: str, count: int = 1) -> None:
    """Read lines until this one has come so often."""
    assert output is not None
    seen: list[str] = []
    while seen.count(line) < count:
        got = output.readline()
        assert got, f"the end came first: {seen}"
        seen.append(got.rstrip("\n"))


def test_a_step_has_this_nodes_part_of_all_tasks(rank: Rank) -> None:
    code, output = rank.run("srun -l sh -c 'echo $SLURM_PROCID/$SLURM_NTASKS $SLURM_LOCALID'")
    assert code == 0
    assert sorted(output.splitlines()) == ["2: 2/4 0", "3: 3/4 1"]


def test_a_step_of_fewer_nodes_runs_on_the_first_ones_and_says_so_elsewhere(rank: Rank) -> None:
    code, output = rank.run("srun -N1 -n1 echo prepared")
    assert (code, output) == (0, "srun: not on this node: the step has 1 of 2 nodes\n")


def test_each_task_gets_its_gpus_when_they_are_asked_for(rank: Rank) -> None:
    _, output = rank.run("srun -l --gpus-per-task=1 sh -c 'echo $CUDA_VISIBLE_DEVICES'")
    assert sorted(output.splitlines()) == ["2: GPU-1", "3: GPU-2"]


def test_output_files_are_named_as_slurm_names_them_and_added_to(rank: Rank) -> None:
    for _ in range(2):
        assert rank.run("srun --output %x-%j-%2t.txt echo line")[0] == 0
    assert (rank.directory / "train-17-02.txt").read_text() == "line\nline\n"
    assert (rank.directory / "train-17-03.txt").read_text() == "line\nline\n"


def test_one_failing_task_ends_its_step_with_its_code(rank: Rank) -> None:
    script = "srun sh -c 'test $SLURM_LOCALID = 0 && exit 3; exec sleep 600'; echo ended $?"
    assert rank.run(script) == (0, "ended 3\n")


@pytest.mark.parametrize(
    ("command", "why"),
    spread(
        [
            ("srun --pty bash", "--pty: a job here has no terminal"),
            ("srun -n 3 hostname", "3 tasks cannot be divided evenly over 2 nodes"),
            ("srun -N 3 hostname", "--nodes=3: the job has 2"),
            ("srun -w gpu-b -N1 hostname", "a step here has the first nodes of the job"),
            ("srun --mpi=pmix hostname", "dlq's srun speaks no PMI"),
            ("srun --bananas hostname", "--bananas needs a value|--bananas: not supported"),
            ("srun", "there is no command to run"),
        ],
        3,
    ),
)
def test_what_srun_cannot_do_is_refused_with_its_reason(rank: Rank, command: str, why: str) -> None:
    code, output = rank.run(command)
    assert code == 1
    assert any(part in output for part in why.split("|")), output


def test_a_signal_goes_to_the_steps_and_the_script_goes_on(rank: Rank) -> None:
    (rank.directory / "task").write_text(SAVES.format(then="echo saved $SLURM_PROCID; exit 0"))
    process = rank.start("srun sh task; echo script ends with $?")
    wait_for(process.stdout, "ready", 2)
    process.send_signal(signal.SIGUSR1)
    output, _ = process.communicate(timeout=60)
    assert sorted(output.splitlines()) == ["saved 2", "saved 3", "script ends with 0"]
    assert process.returncode == 0


def test_without_steps_a_signal_goes_to_the_program_itself(rank: Rank) -> None:
    process = rank.start(SAVES.format(then="echo saved; exit 7"))
    wait_for(process.stdout, "ready")
    process.send_signal(signal.SIGUSR1)
    assert process.communicate(timeout=60)[0] == "saved\n"
    assert process.returncode == 7


def test_a_signal_that_ends_the_program_ends_the_rank_by_the_same(rank: Rank) -> None:
    process = rank.start("echo ready; exec sleep 600")
    wait_for(process.stdout, "ready")
    process.send_signal(signal.SIGUSR2)
    assert process.wait(timeout=60) == -signal.SIGUSR2


@pytest.mark.parametrize("code", [0, 255])
def test_a_requeue_ends_the_rank_with_99_whatever_the_program_makes_of_it(
    rank: Rank, code: int
) -> None:
    script = (
        f"trap 'exit {code}' TERM; scontrol requeue $SLURM_JOB_ID; while :; do sleep 0.05; done"
    )
    assert rank.run(script) == (99, "")


def test_a_requeue_just_before_the_end_counts(rank: Rank) -> None:
    assert rank.run("scontrol requeue 17; exit 1") == (99, "")


def test_a_program_that_ignores_the_requeue_is_not_waited_for(rank: Rank) -> None:
    process = rank.start("trap '' TERM; scontrol requeue 17; echo asked; exec sleep 30")
    wait_for(process.stdout, "asked")
    assert process.wait(timeout=60) == 99


def test_the_name_of_an_array_task_is_its_own(rank: Rank) -> None:
    rank.environment = {
        **rank.environment,
        "SLURM_ARRAY_JOB_ID": "12",
        "SLURM_ARRAY_TASK_ID": "4",
    }
    assert rank.run("scontrol requeue 12_4; exec sleep 600")[0] == 99


def test_other_jobs_need_an_identity_and_without_dlq_that_is_said(rank: Rank) -> None:
    (rank.programs.parent / "lib" / "dlq-cli").write_text("/nowhere/dlq\n")
    code, output = rank.run("scontrol requeue 18")
    assert code == 127
    assert output.startswith("scontrol: no `dlq` command is here")


def test_hosts_and_facts_of_the_job_need_nobody(rank: Rank) -> None:
    assert rank.run("scontrol show hostnames") == (0, "gpu-a\ngpu-b\n")
    assert rank.run("scontrol show hostnames 'n[08-10]'") == (0, "n08\nn09\nn10\n")
    assert rank.run("scontrol show hostlist n08,n09,n10,x") == (0, "n[08-10],x\n")
    code, output = rank.run("scontrol -o show job 17")
    assert code == 0
    assert "JobId=17 JobName=train" in output


def test_a_command_that_is_not_there_is_told_as_a_shell_would(rank: Rank) -> None:
    code, output = rank.run("srun /no/such/program")
    assert (code, output) == (127, "srun: error: /no/such/program: No such file or directory\n")

"""The main process of a rank: signals, a requeue that is no failure, and how it ends."""

import signal
import time
from typing import IO

import pytest

from unit.compat.conftest import TwoNodes

# A shell that says that it is ready, and what it does when it is told to save.
SAVES = "trap '{then}' USR1; echo ready; while :; do sleep 0.05; done"
# A task that does, without any child.
TASK = """\
import os, signal
signal.signal(signal.SIGUSR1, lambda *_: exit(print("saved", os.environ["SLURM_PROCID"])))
print("ready", flush=True)
while True:
    signal.pause()
"""


def wait_for(output: IO[str] | None, line: str, count: int = 1) -> None:
    """Read lines until this one has come so often."""
    assert output is not None
    seen: list[str] = []
    while seen.count(line) < count:
        got = output.readline()
        assert got, f"the end came first: {seen}"
        seen.append(got.rstrip("\n"))


def test_a_signal_goes_to_the_steps_of_all_nodes_and_the_script_goes_on(job: TwoNodes) -> None:
    (job.directory / "task").write_text(TASK)
    process = job.start("srun python3 task; echo script ends with $?")
    wait_for(process.stdout, "ready", 4)
    process.send_signal(signal.SIGUSR1)
    output, _ = process.communicate(timeout=60)
    saved = [f"saved {rank}" for rank in range(4)]
    assert sorted(output.splitlines()) == [*saved, "script ends with 0"]
    assert process.returncode == 0


def test_the_scripts_own_signal_goes_to_it_and_not_to_its_steps(job: TwoNodes) -> None:
    job.shared["DLQ_SCRIPT_SIGNAL"] = str(int(signal.SIGUSR1))
    (job.directory / "task").write_text(TASK)
    script = "trap 'echo script; kill $!' USR1; srun -n1 -N1 python3 task & wait; wait; echo end"
    process = job.start(script)
    wait_for(process.stdout, "ready")
    process.send_signal(signal.SIGUSR1)
    output, _ = process.communicate(timeout=60)
    assert "saved" not in output
    assert output.startswith("script\n")
    assert output.endswith("end\n")


def test_without_steps_a_signal_goes_to_the_program_itself(job: TwoNodes) -> None:
    process = job.start(SAVES.format(then="echo saved; exit 7"))
    wait_for(process.stdout, "ready")
    process.send_signal(signal.SIGUSR1)
    assert process.communicate(timeout=60)[0] == "saved\n"
    assert process.returncode == 7


@pytest.mark.parametrize(
    "order", [(signal.SIGCONT, signal.SIGTERM), (signal.SIGTERM, signal.SIGCONT)]
)
def test_a_cancel_ends_the_script_with_its_step_as_in_slurm(
    job: TwoNodes, order: tuple[signal.Signals, ...]
) -> None:
    process = job.start("srun sh -c 'echo ready; exec sleep 600'; echo goes on")
    wait_for(process.stdout, "ready", 4)
    for number in order:
        process.send_signal(number)
        time.sleep(0.01)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM
    assert "goes on" not in output


def test_a_cancel_leaves_the_steps_the_time_to_save(job: TwoNodes) -> None:
    (job.directory / "task").write_text(
        TASK.replace("SIGUSR1", "SIGTERM").replace(
            "exit(print", "exit(__import__('time').sleep(1) or print"
        )
    )
    process = job.start("srun -n4 python3 task; echo goes on")
    wait_for(process.stdout, "ready", 4)
    process.send_signal(signal.SIGCONT)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM
    assert {f"saved {rank}" for rank in range(4)} <= set(output.splitlines())
    assert "goes on" not in output


def test_steps_that_the_script_has_left_are_told_to_end_and_waited_for(job: TwoNodes) -> None:
    (job.directory / "task").write_text(TASK.replace("SIGUSR1", "SIGTERM"))
    process = job.start("srun -n4 python3 task & sleep 1; exit 5")
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 5
    assert {f"saved {rank}" for rank in range(4)} <= set(output.splitlines())


def test_a_signal_that_ends_the_program_ends_the_rank_by_the_same(job: TwoNodes) -> None:
    process = job.start("echo ready; exec sleep 600")
    wait_for(process.stdout, "ready")
    process.send_signal(signal.SIGUSR2)
    assert process.wait(timeout=60) == -signal.SIGUSR2


@pytest.mark.parametrize("code", [0, 255])
def test_a_requeue_ends_the_rank_with_99_whatever_the_program_makes_of_it(
    job: TwoNodes, code: int
) -> None:
    script = (
        f"trap 'exit {code}' TERM; scontrol requeue $SLURM_JOB_ID; while :; do sleep 0.05; done"
    )
    assert job.run(script) == (99, "")


def test_a_requeue_just_before_the_end_counts(job: TwoNodes) -> None:
    assert job.run("scontrol requeue 17; exit 1") == (99, "")


def test_a_program_that_ignores_the_requeue_is_not_waited_for(job: TwoNodes) -> None:
    process = job.start("trap '' TERM; scontrol requeue 17; echo asked; exec sleep 30")
    wait_for(process.stdout, "asked")
    assert process.wait(timeout=60) == 99


def test_the_name_of_an_array_task_is_its_own(job: TwoNodes) -> None:
    job.shared |= {"SLURM_ARRAY_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": "4"}
    assert job.run("scontrol requeue 12_4; exec sleep 600")[0] == 99


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("scontrol requeue 17; exit 0", 99)])
def test_the_other_nodes_end_with_the_first(job: TwoNodes, script: str, code: int) -> None:
    assert job.run(f"sleep 1; {script}")[0] == code
    holder = job.started[0]
    assert holder.wait(timeout=60) == code
    assert holder.communicate()[0] == ""
    assert (job.job_dir(1) / "workers_done").exists()


def test_a_node_that_never_reaches_the_first_ends_well_when_it_is_told_to(job: TwoNodes) -> None:
    holder = job.start_rank(1, "--hold")
    while not (job.job_dir(1) / "workers_done").exists():
        assert holder.poll() is None
    holder.send_signal(signal.SIGTERM)
    assert holder.wait(timeout=60) == 0


def test_a_rank_without_a_word_from_the_agent_says_so(job: TwoNodes) -> None:
    del job.shared["DLQ_STEP_PEERS"]
    process = job.start_rank(0, "true")
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 125
    assert "the agent has not said which rank this is" in output


def test_a_program_that_is_not_there_is_told_as_a_shell_would(job: TwoNodes) -> None:
    process = job.start_rank(0, "/no/such/program")
    output, _ = process.communicate(timeout=60)
    assert output == "dlq: cannot run /no/such/program: No such file or directory\n"
    assert process.returncode == 127


def test_a_requeue_of_an_empty_word_is_none_of_this_job(job: TwoNodes) -> None:
    said = "scontrol: error: Invalid job id specified\n"
    assert job.run('scontrol requeue "$NOT_SET"; exit 3') == (3, said)


def test_other_jobs_need_an_identity_and_without_dlq_that_is_said(job: TwoNodes) -> None:
    (job.programs.parent / "lib" / "dlq-cli").write_text("/nowhere/dlq\n")
    code, output = job.run("scontrol requeue 18")
    assert code == 127
    assert output.startswith("scontrol: no `dlq` command is here")


def test_hosts_and_facts_of_the_job_need_nobody(job: TwoNodes) -> None:
    words = "scontrol show hostnames; scontrol show hostnames 'n[08-10]'"
    assert job.run(words) == (0, "gpu-a\ngpu-b\nn08\nn09\nn10\n")
    code, output = job.run("scontrol show hostlist n08,n09,n10,x; scontrol -o show job 17")
    assert code == 0
    assert output.startswith("n[08-10],x\n")
    assert "no answer of the master: this is what the job knows" in output
    assert "JobId=17 JobName=train" in output


def a_dlq(job: TwoNodes, script: str) -> None:
    """A `dlq` that does this."""
    path = job.directory / "dlq"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    (job.programs.parent / "lib" / "dlq-cli").write_text(f"{path}\n")


def test_a_job_shows_itself_as_the_master_knows_it(job: TwoNodes) -> None:
    """Else its page would differ from the one outside: no command, no comment, no time limit."""
    a_dlq(job, 'echo "JobId=17 Comment=third $*"')
    code, output = job.run("scontrol -d show job 17; scontrol show job")
    assert code == 0
    told = ("-d show job 17", "show job")
    assert output == "".join(f"JobId=17 Comment=third slurm scontrol {one}\n" for one in told)


def test_a_number_in_a_variable_is_no_job(job: TwoNodes) -> None:
    """`salloc` sets it on its host; and programs strip all other variables."""
    a_dlq(job, 'echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1')
    code, output = job.run("env -u DLQ_JOB_ID scontrol show job 17")
    assert (code, output) == (1, "slurm_load_jobs error: Invalid job id specified\n")

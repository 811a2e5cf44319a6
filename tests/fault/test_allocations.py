"""`salloc`, and `srun` outside a job, on real daemons: clients and daemons die meanwhile."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest

from support.harness import BIN, Daemons
from support.sessions import Session, interrupt
from support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.long("unit/cli/slurm/test_allocate_words.py")]
DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    """A master that waits 4 s for clients, and one node with eight virtual GPUs."""
    made = Daemons(tmp_path_factory.mktemp("allocations"), ("n1",))
    made_toml = made._make_master

    def with_short_silence() -> None:
        made_toml()
        config = made.root / "master.toml"
        text = config.read_text().replace("[jobs]\n", '[jobs]\nattend_silence = "8s"\n', 1)
        config.write_text(text)

    made._make_master = with_short_silence  # type: ignore[method-assign]
    with made.up():
        yield made


def words_of(*words: str) -> list[str]:
    return [str(BIN / "dlq"), "slurm", *words]


def run(daemons: Daemons, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return daemons.ran(*words_of(*words), stdin=stdin, timeout_s=DEADLINE_S)


def begun(daemons: Daemons, *words: str) -> AbstractContextManager[subprocess.Popen[bytes]]:
    return daemons.begun(*words_of(*words), stdin=subprocess.DEVNULL)


def told(process: subprocess.Popen[bytes], text: bytes) -> bytes:
    """What stderr says up to this text."""
    assert process.stderr is not None
    said = b""
    while text not in said:
        ready, _, _ = select.select([process.stderr], [], [], DEADLINE_S)
        assert ready, said
        piece = os.read(process.stderr.fileno(), 4096)
        assert piece, said
        said += piece
    return said


def states(daemons: Daemons) -> dict[str, str]:
    with daemons.connect() as line:
        from dlq_cli.words import shown_state
        from dlq_client.jobs import Jobs

        return {job.name: shown_state(job) for job in Jobs(line).list(user="*").jobs}


def state(daemons: Daemons, name: str) -> str:
    return states(daemons).get(name, "")


def until(daemons: Daemons, name: str, *wanted: str) -> None:
    wait_until(
        lambda: state(daemons, name) in wanted, what=f"{name} is {wanted}", timeout_s=DEADLINE_S
    )


@pytest.mark.parametrize(
    ("script", "code", "words"),
    [
        ("true", 0, b""),
        ("exit 3", 3, b"srun: error: n1: task 0: Exited with exit code 3\n"),
        ("kill -9 $$", 137, b"srun: error: n1: task 0: Killed\n"),
    ],
)
def test_srun_ends_as_its_task_does(daemons: Daemons, script: str, code: int, words: bytes) -> None:
    done = run(daemons, "srun", "-G1", "sh", "-c", script)
    assert (done.returncode, done.stdout, done.stderr) == (code, b"", words)


def test_the_job_of_an_srun_ends_with_its_exit_code(daemons: Daemons) -> None:
    run(daemons, "srun", "-G1", "-J", "coded", "sh", "-c", "exit 4")
    until(daemons, "coded", "failed")
    assert "4:0" in next(line for line in daemons.said("history").splitlines() if "coded" in line)


def test_stdin_goes_in_and_both_outputs_come_apart(daemons: Daemons) -> None:
    done = run(daemons, "srun", "-G1", "sh", "-c", "cat; echo bad >&2", stdin=b"x\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"x\n", b"bad\n")


def test_a_hundred_megabytes_pass_both_ways(daemons: Daemons) -> None:
    data = os.urandom(1 << 20) * 100
    done = run(daemons, "srun", "-G1", "cat", stdin=data)
    assert done.returncode == 0
    assert done.stdout == data


def test_a_task_that_reads_no_more_ends_all_the_same(daemons: Daemons) -> None:
    done = run(daemons, "srun", "-G1", "head", "-c1", stdin=b"y" * (8 << 20))
    assert (done.returncode, done.stdout) == (0, b"y")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("srun",), 1, b"srun: fatal: No command given to execute."),
        (("srun", "-G100", "true"), 1, b"Requested node configuration is not available"),
        (("srun", "--nosuch", "true"), 255, b"srun: unrecognized option '--nosuch'"),
        (("srun", "-G1", "nosuch"), 2, b"execve(): nosuch: No such file or directory"),
        (("srun", "--jobid=999", "true"), 1, b"Invalid job id specified"),
        (("srun", "-G9", "true"), 1, b"Requested node configuration is not available"),
    ],
)
def test_mistakes_are_told_as_slurm_tells_them(
    daemons: Daemons, words: tuple[str, ...], code: int, said: bytes
) -> None:
    done = run(daemons, *words)
    assert done.returncode == code
    assert said in done.stderr


def test_a_shell_of_salloc_reads_a_pipe(daemons: Daemons) -> None:
    done = run(daemons, "salloc", "-G1", stdin=b"test $SLURM_JOB_ID && echo here\nexit 3\n")
    assert (done.returncode, done.stdout) == (3, b"here\n")
    assert b"salloc: Relinquishing job allocation" in done.stderr


def test_the_one_task_of_srun_finds_its_step(daemons: Daemons) -> None:
    names = ("STEP_ID", "STEPID", "STEP_NUM_TASKS", "STEP_NUM_NODES", "STEP_NODELIST")
    script = f"echo {' '.join(f'$SLURM_{name}' for name in names)}; test $SLURM_TASK_PID = $$"
    done = run(daemons, "srun", "-G1", "sh", "-c", script)
    assert (done.returncode, done.stdout) == (0, b"0 0 1 1 n1\n")


def test_a_client_whose_terminal_is_closed_gives_its_nodes_back(daemons: Daemons) -> None:
    with begun(daemons, "salloc", "-G1", "-J", "closed", "sh", "-c", "sleep 1; exit 5") as client:
        told(client, b"Granted")
        assert client.stderr is not None
        client.stderr.close()
        until(daemons, "closed", "failed", "cancelled")
        assert state(daemons, "closed") == "failed", "its end is told, and not found by silence"


def test_srun_lists_the_kinds_of_mpi(daemons: Daemons) -> None:
    done = run(daemons, "srun", "--mpi=list")
    assert (done.returncode, done.stdout) == (0, b"MPI plugin types are...\n\tnone\n")


def test_salloc_runs_its_command_here_and_relinquishes(daemons: Daemons) -> None:
    script = 'test -n "$SLURM_JOB_ID" && test "$SLURM_JOB_NODELIST" = n1 && exit 5'
    done = run(daemons, "salloc", "-G1", "-J", "here", "sh", "-c", script)
    assert done.returncode == 5
    granted, relinquished = done.stderr.decode().splitlines()
    assert granted.startswith("salloc: Granted job allocation ")
    assert relinquished == granted.replace("Granted", "Relinquishing")
    until(daemons, "here", "failed")


def test_srun_in_an_allocation_has_the_environment_of_its_caller(daemons: Daemons) -> None:
    dlq = BIN / "dlq"
    script = f"COLOUR=blue {dlq} slurm srun sh -c 'echo $COLOUR $SLURM_JOB_ID; pwd'; echo $?"
    done = run(daemons, "salloc", "-G1", "sh", "-c", f"echo $SLURM_JOB_ID; {script}")
    job_id, told_, where, code = done.stdout.decode().splitlines()
    assert (told_, where, code) == (f"blue {job_id}", "/tmp", "0")


def test_a_client_that_waits_tells_it_and_may_give_up(daemons: Daemons) -> None:
    with begun(daemons, "srun", "-G8", "-J", "block", "sleep", "1000") as block:
        until(daemons, "block", "running")
        for program, last in (
            ("salloc", b"salloc: Job aborted due to signal\n"),
            ("srun", b"has been revoked\n"),
        ):
            with begun(daemons, program, "-G1", "true") as waiting:
                told(waiting, b"queued and waiting for resources\n")
                waiting.send_signal(signal.SIGINT)
                told(waiting, last)
                assert waiting.wait(DEADLINE_S) == 1
        done = run(daemons, "srun", "--immediate", "-G1", "true")
        assert done.returncode == 1
        assert done.stderr.endswith(b"Requested nodes are busy\n")
        with begun(daemons, "salloc", "-G1", "true") as next_:
            told(next_, b"queued and waiting for resources\n")
            block.send_signal(signal.SIGTERM)
            told(next_, b"Relinquishing")
            assert next_.wait(DEADLINE_S) == 0


@pytest.mark.parametrize("stage", ["waiting", "running", "salloc"])
def test_an_allocation_ends_when_its_client_is_killed(daemons: Daemons, stage: str) -> None:
    name = f"left-{stage}"
    if stage == "waiting":
        words = ["srun", "-G1", "-J", name, "-b", "now+1hour", "true"]
    elif stage == "running":
        words = ["srun", "-G1", "-J", name, "sleep", "1000"]
    else:
        words = ["salloc", "-G1", "-J", name, "sleep", "30"]
    with begun(daemons, *words) as client:
        until(daemons, name, "queued", "pending", "held") if stage == "waiting" else until(
            daemons, name, "running"
        )
        client.kill()
    until(daemons, name, "cancelled", "failed")
    if stage != "running":  # there the step ended with its client, and the job with its step
        events = daemons.said("events", "--json")
        assert "client_gone" in events


def test_a_restart_of_the_master_ends_no_allocation(daemons: Daemons) -> None:
    script = 'until [ -e "$1" ]; do sleep 0.2; done'
    flag = daemons.root / "flag"
    with begun(daemons, "salloc", "-G1", "-J", "kept", "sh", "-c", script, "sh", str(flag)) as it:
        told(it, b"Granted job allocation")
        daemons.kill("master")
        daemons.start("master")
        daemons.wait_for("master")
        until(daemons, "kept", "running")
        flag.touch()
        told(it, b"Relinquishing job allocation")
        assert it.wait(DEADLINE_S) == 0
    until(daemons, "kept", "completed")


def test_a_restart_of_the_agent_ends_the_step_but_no_allocation(daemons: Daemons) -> None:
    flag = daemons.root / "flag2"
    script = 'until [ -e "$1" ]; do sleep 0.2; done'
    with begun(daemons, "salloc", "-G1", "-J", "stays", "sh", "-c", script, "sh", str(flag)) as it:
        told(it, b"Granted job allocation")
        daemons.kill("n1")
        daemons.start("n1")
        daemons.wait_for("n1")
        until(daemons, "stays", "running")
        flag.touch()
        assert it.wait(DEADLINE_S) == 0
    until(daemons, "stays", "completed")


def test_a_cancel_tells_the_step_and_the_client(daemons: Daemons) -> None:
    script = "trap 'echo saved; exit 7' TERM; echo up; while :; do sleep 0.1; done"
    with begun(daemons, "srun", "-G1", "-J", "victim", "sh", "-c", script) as client:
        until(daemons, "victim", "running")
        assert client.stdout is not None
        assert client.stdout.readline() == b"up\n"
        daemons.said("cancel", "victim")
        assert client.stdout.readline() == b"saved\n"
        assert client.wait(DEADLINE_S) == 7
    with begun(daemons, "salloc", "-G1", "-J", "shortened", "sleep", "2") as client:
        told(client, b"Granted job allocation")
        daemons.said("cancel", "shortened")
        told(client, b"has been revoked.\n")
        assert client.wait(DEADLINE_S) == 0


@pytest.mark.parametrize("shape", ["-n1", "-n2"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_client_kills_its_tasks_at_once_as_in_slurm(
    daemons: Daemons, shape: str, number: signal.Signals
) -> None:
    script = "trap 'echo late; exit 7' TERM HUP; echo up; while :; do sleep 0.1; done"
    with begun(daemons, "srun", shape, "-G2", "-J", "forced", "sh", "-c", script) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == b"up\n"
        client.send_signal(number)
        said, words = client.communicate(timeout=DEADLINE_S)
    assert (client.returncode, b"late" in said) == (128 + signal.SIGKILL, False)
    assert b"forcing job termination" in words
    assert b"Killed" in words


def test_a_shell_in_an_allocation_ends_with_its_code(daemons: Daemons) -> None:
    session = Session(daemons.environment(), *words_of("salloc", "-G1", "-J", "shell"))
    session.expect("$ ")
    interrupt(session)
    session.press("echo in $SLURM_JOB_NAME\n")
    session.expect("in shell\n")
    session.press("exit 6\n")
    assert session.end() == 6
    assert "Relinquishing job allocation" in session.shown


def test_a_revoked_shell_is_hung_up(daemons: Daemons) -> None:
    session = Session(daemons.environment(), *words_of("salloc", "-G1", "-J", "hung"))
    session.expect("$ ")
    daemons.said("cancel", "hung")
    session.expect("has been revoked.\n")
    assert session.end() == 128 + signal.SIGHUP


def test_a_pty_takes_ctrl_c_and_gives_the_exit_code(daemons: Daemons) -> None:
    session = Session(daemons.environment(), *words_of("srun", "-G1", "--pty", "sh"))
    session.expect("$ ")
    interrupt(session)
    session.press("tty; exit 6\n")
    assert session.end() == 6
    assert "/dev/pts/" in session.shown


def test_a_cancel_ends_a_pty_at_once(daemons: Daemons) -> None:
    session = Session(daemons.environment(), *words_of("srun", "-G1", "-J", "ended", "--pty", "sh"))
    session.expect("$ ")
    daemons.said("cancel", "ended")
    assert session.end() != 0
    until(daemons, "ended", "cancelled")


@pytest.mark.parametrize(
    ("words", "code"),
    [(("exec", "-t", "JOB", "--"), 69), (("slurm", "srun", "-G1", "--pty"), 1)],
)
def test_a_terminal_is_as_before_when_its_agent_is_restarted(
    daemons: Daemons, words: tuple[str, ...], code: int
) -> None:
    asked = ("submit", "--parsable", "-G", "1", "--", "sleep", "1000")
    job_id = daemons.said(*asked).strip()
    daemons.said("wait", "--for", "running", "--timeout", "60s", job_id)
    session = Session(
        daemons.environment(),
        str(BIN / "dlq"),
        *(job_id if word == "JOB" else word for word in words),
        *("sh", "-c", "echo up; exec cat"),
    )
    before = session.mode()
    session.expect("up\n")
    assert session.mode() != before
    daemons.kill("n1")
    daemons.start("n1")
    daemons.wait_for("n1")
    assert session.end() == code
    assert session.last_mode == before
    daemons.said("cancel", "--kill", job_id)


def test_a_shell_of_salloc_and_its_steps_go_on_without_the_master(daemons: Daemons) -> None:
    session = Session(daemons.environment(), *words_of("salloc", "-G1", "-J", "lasting"))
    session.expect("$ ")
    shell_mode = session.mode()
    step = " ".join(words_of("srun", "--pty", "sh"))
    session.press(f"word=kept; {step} -c 'echo in$((1))side; exec sh'; echo step $?\n")
    session.expect("\nin1side\n")
    assert session.mode() != shell_mode
    daemons.kill("master")
    daemons.start("master")
    daemons.wait_for("master")
    session.press("echo still-$((2+2)); exit 8\n")
    session.expect("still-4\n")
    session.expect("\nstep 8\n")
    until(daemons, "lasting", "running")
    assert session.mode() == shell_mode
    session.press("echo $word shell; exit 4\n")
    session.expect("kept shell\n")
    assert session.end() == 4
    until(daemons, "lasting", "failed")


def test_srun_goes_on_without_the_master(daemons: Daemons) -> None:
    script = "for i in 1 2 3 4 5 6 7 8 9; do echo $i; echo e$i >&2; sleep 0.5; done; exit 5"
    with begun(daemons, "srun", "-G1", "-J", "goes-on", "sh", "-c", script) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == b"1\n"
        daemons.kill("master")
        daemons.start("master")
        daemons.wait_for("master")
        out, err = client.communicate(timeout=DEADLINE_S)
        assert client.returncode == 5, err
        assert out.split() == [b"%d" % number for number in range(2, 10)]
        told = [line for line in err.splitlines() if line[:1] == b"e"]
        assert told == [b"e%d" % number for number in range(1, 10)]

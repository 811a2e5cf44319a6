"""`srun` inside a job of two nodes: places, files, words and exit codes as Slurm 22.05 has them."""

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress

import pytest

from unit.compat.conftest import TwoNodes

# A task without children that says when it is signalled.
TASK = """\
import signal
signal.signal(signal.SIGUSR1, lambda *_: print("task", flush=True))
while True:
    signal.pause()
"""


def ends_of(output: str) -> list[str]:
    """srun's lines about ends, without the instants in them."""
    return [line for line in output.splitlines() if line.startswith(("srun:", "slurmstepd"))]


def test_a_step_has_the_tasks_of_all_nodes(job: TwoNodes) -> None:
    code, output = job.run(
        "srun -l sh -c 'echo $SLURM_PROCID/$SLURM_NTASKS $SLURM_LOCALID $SLURMD_NODENAME'"
    )
    assert code == 0
    assert sorted(output.splitlines()) == [
        "0: 0/4 0 gpu-a",
        "1: 1/4 1 gpu-a",
        "2: 2/4 0 gpu-b",
        "3: 3/4 1 gpu-b",
    ]


@pytest.mark.parametrize(
    ("options", "hosts"),
    [
        ("-n3", "gpu-a gpu-a gpu-b"),
        ("-N1 -n2", "gpu-a gpu-a"),
        ("-N2", "gpu-a gpu-b"),
        ("-w gpu-b -N1 -n1", "gpu-b"),
        ("-x gpu-a -n1", "gpu-b"),
        ("-r1 -N1 -n1", "gpu-b"),
        ("-n4 -m cyclic", "gpu-a gpu-b gpu-a gpu-b"),
        ("-n6 -m plane=2", "gpu-a gpu-a gpu-b gpu-b gpu-a gpu-a"),
        ("-n4 --ntasks-per-node=2", "gpu-a gpu-a gpu-b gpu-b"),
    ],
)
def test_tasks_are_placed_as_slurm_places_them(job: TwoNodes, options: str, hosts: str) -> None:
    code, output = job.run(f"srun -l {options} sh -c 'echo $SLURMD_NODENAME'")
    assert code == 0, output
    placed = sorted(output.splitlines(), key=lambda line: int(line.partition(":")[0]))
    assert [line.partition(": ")[2] for line in placed] == hosts.split()


@pytest.mark.parametrize("kept", ["SLURM_JOB_ID=17", "SLURM_JOB_ID=17 HOME=/tmp"])
def test_a_program_that_strips_every_other_variable_reaches_its_job(
    job: TwoNodes, kept: str
) -> None:
    stripped = f"env -i {kept} $(command -v srun) -N1 -n1 /bin/sh -c 'echo $SLURMD_NODENAME'"
    assert job.run(stripped) == (0, "gpu-a\n")


def test_steps_start_from_every_node_of_the_job(job: TwoNodes) -> None:
    inner = "srun --overlap -N1 -n1 -w gpu-a sh -c 'echo from b on $SLURMD_NODENAME'"
    assert job.run(f'srun -w gpu-b -N1 -n1 sh -c "{inner}"') == (0, "from b on gpu-a\n")


def test_each_task_gets_its_gpus_when_they_are_asked_for(job: TwoNodes) -> None:
    show = "sh -c 'echo $CUDA_VISIBLE_DEVICES'"
    _, output = job.run(f"srun -l --gpus-per-task=1 {show}; srun -N1 -n1 --gpus=1 {show}")
    assert sorted(output.splitlines()) == [
        "0: GPU-00", "1: GPU-01", "2: GPU-10", "3: GPU-11", "GPU-00",
    ]  # fmt: skip


def test_output_files_are_named_as_slurm_names_them(job: TwoNodes) -> None:
    code, _ = job.run("srun -n2 -N1 -o %x-%j-%2t-%N-%s.txt echo line; srun -n2 -N1 -o all echo x")
    assert code == 0
    assert (job.directory / "train-17-00-gpu-a-0.txt").read_text() == "line\n"
    assert (job.directory / "train-17-01-gpu-a-0.txt").read_text() == "line\n"


@pytest.mark.parametrize(
    ("options", "restarts", "kept"),
    [("", "", "2\n"), ("", "1", "1\n2\n"), ("--open-mode=a", "", "1\n2\n")],
)
def test_a_file_is_begun_anew_unless_it_is_a_later_attempts(
    job: TwoNodes, options: str, restarts: str, kept: str
) -> None:
    job.shared |= {"SLURM_RESTART_COUNT": restarts} if restarts else {}
    job.run(f"for i in 1 2; do srun -n1 -N1 {options} -o out.txt echo $i; done")
    assert (job.directory / "out.txt").read_text() == kept


def test_both_streams_of_all_tasks_may_share_one_file(job: TwoNodes) -> None:
    job.run("srun -n2 -N1 -o out.txt -e out.txt sh -c 'echo out; echo err >&2'")
    written = (job.directory / "out.txt").read_text()
    assert sorted(written.split()) == ["err", "err", "out", "out"]
    job.run("srun -n2 -N1 -o t-%t -e t-%t sh -c 'echo out; echo err >&2'")
    assert sorted((job.directory / "t-1").read_text().split()) == ["err", "out"]


def test_a_number_names_the_task_whose_output_is_kept(job: TwoNodes) -> None:
    show = "sh -c 'echo out $SLURM_PROCID; echo err >&2'"
    assert job.run(f"srun -n4 -o 2 -e none {show}") == (0, "out 2\n")


def test_a_file_of_another_user_is_refused_by_the_kernel(job: TwoNodes) -> None:
    code, output = job.run("srun -n1 -N1 -o /proc/1/no echo x")
    assert code == 1
    assert output.startswith("srun: error: Could not open stdout file: /proc/1/no: ")


def test_stdin_goes_to_every_task_or_to_one(job: TwoNodes) -> None:
    assert job.run("echo hi | srun -n2 cat; echo one | srun -n2 -i 1 -l cat") == (
        0,
        "hi\nhi\n1: one\n",
    )


def test_much_input_and_output_arrive_whole(job: TwoNodes) -> None:
    copy = "head -c 20000000 /dev/zero | srun -w gpu-b -N1 -n1 cat | wc -c"
    assert job.run(copy) == (0, "20000000\n")


def test_a_step_waits_for_a_node_that_still_starts(job: TwoNodes) -> None:
    process = job.start_rank(0, "/bin/sh", "-c", "srun -N2 -n2 echo up")
    time.sleep(0.5)
    job.start_rank(1, "--hold")
    assert process.communicate(timeout=60)[0] == "up\nup\n"


@pytest.mark.parametrize("node", ["gpu-a", "gpu-b"])
def test_no_output_is_lost_when_a_task_does_not_read_its_input(job: TwoNodes, node: str) -> None:
    step = f"srun -N1 -n1 -w {node} head -c 300000 /dev/zero < /dev/null"
    code, output = job.run(f"for i in $(seq 60); do {step}; done | wc -c")
    assert (code, output) == (0, f"{60 * 300000}\n")


def test_arguments_are_as_many_as_they_are(job: TwoNodes) -> None:
    assert job.run("srun -N1 -n1 sh -c 'echo $#' x $(seq 20000)") == (0, "20000\n")


def test_a_program_of_the_working_directory_and_the_limits_of_srun_are_the_tasks(
    job: TwoNodes,
) -> None:
    (job.directory / "a.out").write_text("#!/bin/sh\nulimit -n\nulimit -c\n")
    (job.directory / "a.out").chmod(0o755)
    assert job.run("ulimit -S -n 777; ulimit -S -c 0; srun -N1 -n1 a.out") == (0, "777\n0\n")


def test_an_environment_that_is_too_large_is_told(job: TwoNodes) -> None:
    fill = "for i in $(seq 50); do export V$i=$(head -c 100000 /dev/zero | tr '\\0' x); done"
    code, output = job.run(f"ulimit -s unlimited; {fill}; srun -N1 -n1 true; exit $?")
    assert code == 1
    assert "the arguments and the environment are larger than 4 MiB" in output


def test_labels_are_as_wide_as_the_highest_rank(job: TwoNodes) -> None:
    _, output = job.run("srun -l -n11 echo x")
    assert sorted(output.splitlines()) == sorted(f"{rank:2}: x" for rank in range(11))


# ---- ends


def failures_of(output: str) -> list[str]:
    """A line for each task. Those that end within a moment share one, if the machine is idle."""
    told = "\n".join(line for line in ends_of(output) if ": error: gpu" in line)
    apart = r"gpu-a: task 0: \1\nsrun: error: gpu-a: task 1: \1"
    return sorted(re.sub(r"gpu-a: tasks 0-1: (.+)", apart, told).splitlines())


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        (
            "srun -N1 -n2 sh -c 'exit 3'",
            3,
            ["gpu-a: task 0: Exited with exit code 3", "gpu-a: task 1: Exited with exit code 3"],
        ),
        ("srun -N1 -n1 sh -c 'kill -9 $$'", 137, ["gpu-a: task 0: Killed"]),
        ("srun -N1 -n1 sh -c 'kill -TERM $$'", 143, ["gpu-a: task 0: Terminated"]),
        ("srun -N1 -n1 nosuch", 2, ["gpu-a: task 0: Exited with exit code 2"]),
        ("srun -N1 -n1 /etc/passwd", 13, ["gpu-a: task 0: Exited with exit code 13"]),
    ],
)
def test_a_failing_task_is_told_in_slurms_words(
    job: TwoNodes, command: str, code: int, words: list[str]
) -> None:
    ended, output = job.run(f"{command}; exit $?")
    assert ended == code, output
    assert failures_of(output) == [f"srun: error: {each}" for each in words]
    assert ("srun: Force Terminated StepId=17.0" in output) == (code > 128)


def test_a_failing_task_leaves_the_others_alone_unless_it_is_asked_to_end_them(
    job: TwoNodes,
) -> None:
    fails = "sh -c '[ $SLURM_PROCID = 0 ] && exit 3; sleep 0.3; echo done $SLURM_PROCID'"
    code, output = job.run(f"srun -n3 {fails}; exit $?")
    assert code == 3
    assert {"done 1", "done 2"} <= set(output.splitlines())
    job.close()


def test_kill_on_bad_exit_ends_the_others(job: TwoNodes) -> None:
    code, output = job.run(
        "srun -n4 -K sh -c '[ $SLURM_PROCID = 1 ] && exit 3; exec sleep 600'; exit $?"
    )
    assert code == 143
    assert "srun: launch/slurm: _step_signal: Terminating StepId=17.0" in output
    assert "*** STEP 17.0 ON gpu-a CANCELLED AT " in output
    assert output.endswith("srun: Force Terminated StepId=17.0\n")


def test_stragglers_are_ended_after_the_wait(job: TwoNodes) -> None:
    code, output = job.run("srun -n2 -W1 sh -c '[ $SLURM_PROCID = 0 ] || sleep 600'; exit $?")
    assert code == 137
    assert "srun: First task exited 1s ago\nsrun: StepId=17.0 task 1: running\n" in output
    assert "srun: StepId=17.0 task 0: exited\n" in output


@pytest.mark.parametrize("limit", ["0:01", "0:00:01", "0-0:00:01"])
def test_a_step_has_its_own_time_limit(job: TwoNodes, limit: str) -> None:
    code, output = job.run(f"srun -N1 -n1 -t {limit} sleep 600; exit $?")
    assert code == 143
    assert re.search(r"\*\*\* STEP 17.0 ON gpu-a CANCELLED AT \S+ DUE TO TIME LIMIT \*\*\*", output)


def test_a_step_that_is_killed_leaves_no_task_on_any_node(job: TwoNodes) -> None:
    code, output = job.run(
        "srun -n4 sh -c 'echo $$; exec sleep 600' & sleep 1; kill -9 $!; sleep 1; true"
    )
    assert code == 0
    pids = [int(line) for line in output.splitlines() if line.isdecimal()]
    assert len(pids) == 4
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]


def test_no_step_begins_once_the_script_has_ended(job: TwoNodes) -> None:
    """Not even while another one of the job still saves."""
    code, output = job.run("""\
        (sleep 3; srun --overlap -n1 echo begun) &
        srun --overlap -n1 sh -c 'trap "" TERM; echo up; sleep 6' &
        sleep 1; exit 0
    """)
    assert code == 0
    assert "Job/step already completing or completed" in output
    assert "begun" not in output


def test_a_node_that_dies_ends_its_tasks_and_says_so(job: TwoNodes) -> None:
    process = job.start("srun -N2 -n2 sh -c 'echo ready; exec sleep 600'; exit $?")
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["ready\n", "ready\n"]
    os.killpg(job.started[0].pid, signal.SIGKILL)
    assert "Node failure on gpu-b" in process.stdout.readline()
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 128 + signal.SIGTERM


@pytest.mark.parametrize(("word", "code", "saves"), [("TERM", 9, True), ("QUIT", 137, False)])
def test_a_quit_kills_tasks_that_a_preemption_lets_save(
    job: TwoNodes, word: str, code: int, saves: bool
) -> None:
    ended, output = job.run(f"""\
        mkfifo up
        srun -N1 -n1 sh -c 'trap "echo saved; exit 9" TERM; : > up; while :; do sleep 0.1; done' &
        read -r _ < up
        kill -{word} $!
        wait $!
    """)
    assert (ended, "saved" in output) == (code, saves), output


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("17.0", 143, "*** STEP 17.0 ON gpu-a CANCELLED AT "),
        ("-s KILL 17.0", 137, "srun: error: gpu-a: task 0: Killed"),
        ("--signal=SIGUSR1 17.0", 138, "srun: error: gpu-a: task 0: User defined signal 1"),
    ],
)
def test_a_step_is_cancelled_from_inside_without_any_identity(
    job: TwoNodes, words: str, code: int, said: str
) -> None:
    ended, output = job.run(
        f"srun -N1 -n1 sleep 600 & sleep 0.5; scancel {words}; wait $!; exit $?"
    )
    assert (ended, said in output) == (code, True), output


@pytest.mark.parametrize(("words", "told"), [("-b", "script"), ("-f", "script task")])
def test_the_script_is_signalled_by_batch_and_with_its_steps_by_full(
    job: TwoNodes, words: str, told: str
) -> None:
    (job.directory / "task").write_text(TASK)
    process = job.start(
        "trap 'echo script' USR1; srun -N1 -n1 python3 task & sleep 1\n"
        f"scancel {words} -s USR1 17; sleep 0.5; scancel -Q -s KILL 17.0; wait; true"
    )
    output, _ = process.communicate(timeout=60)
    seen = [line for line in output.splitlines() if line in ("script", "task")]
    assert sorted(seen) == sorted(told.split())


def test_a_step_that_is_not_there_cannot_be_cancelled(job: TwoNodes) -> None:
    code, output = job.run("scancel 17.5; exit $?")
    error = "scancel: error: Kill job error on job step id 17: Invalid job id specified\n"
    assert (code, output) == (225, error)


# ---- room


def test_steps_wait_for_each_other_unless_they_overlap(counted_job: TwoNodes) -> None:
    code, output = counted_job.run(
        "srun -N1 -n1 sh -c 'sleep 1; echo first' & sleep 0.5\n"
        "srun --overlap -N1 -n1 echo overlaps; srun -N2 -n2 echo second; wait"
    )
    assert code == 0
    lines = [line for line in output.splitlines() if not line.startswith("srun:")]
    assert lines == ["overlaps", "first", "second", "second"]
    assert "step creation temporarily disabled, retrying (Requested nodes are busy)" in output
    assert "srun: Step created for job 17" in output


def test_exact_steps_share_the_cores_of_a_node(counted_job: TwoNodes) -> None:
    step = "srun --exact -N1 -n2 -w gpu-a sh -c 'sleep 1'"
    code, output = counted_job.run(f"{step} & {step} & sleep 0.3; {step}; wait")
    assert code == 0
    assert output.count("temporarily disabled") == 1


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ("-n9 true", 1, "Unable to create step for job 17: More processors requested than permi"),
        ("-N3 true", 1, "Only allocated 2 nodes asked for 3"),
        ("-w zzz true", 1, "Requested node configuration is not available"),
        ("--bogus true", 255, "srun: unrecognized option '--bogus'"),
        ("", 1, "srun: fatal: No command given to execute."),
        ("-n x true", 1, "Invalid value for --ntasks: 'x'"),
        ("--het-group=1 true", 1, "--het-group: dlq's srun does not do that inside a job: a step"),
        ("echo a : -n 1 echo b", 1, "`:` begins another part of the step: a step has the nodes of"),
        ("--bcast true", 1, "--bcast: dlq's srun does not do that inside a job"),
        ("--gpus-per-task=3 -n1 true", 1, "Invalid generic resource (gres) specification"),
        ("--mpi=pmix true", 1, "Invalid MPI type 'pmix'"),
    ],
)
def test_a_wrong_step_is_refused_in_slurms_words(
    counted_job: TwoNodes, command: str, code: int, words: str
) -> None:
    ended, output = counted_job.run(f"srun {command}; exit $?")
    assert (ended, words in output) == (code, True), output


def test_a_colon_is_a_word_of_the_program_behind_two_dashes(job: TwoNodes) -> None:
    """A command of several tasks is started so, whatever its words are."""
    assert job.run("srun -n1 -- echo a : b; exit $?") == (0, "a : b\n")


def test_several_programs_in_one_step(job: TwoNodes) -> None:
    (job.directory / "m").write_text(
        "0-1 echo %t %o 'a  b'\n# none\n2 echo two\n* sh -c 'exit 4'\n"
    )
    code, output = job.run("srun -l -n4 --multi-prog m; exit $?")
    assert code == 4
    assert sorted(output.splitlines())[:3] == ["0: 0 0 a  b", "1: 1 1 a  b", "2: two"]


def test_a_file_of_programs_with_too_many_tasks_is_refused(job: TwoNodes) -> None:
    (job.directory / "m").write_text("0-4 true\n")
    code, output = job.run("srun -n4 --multi-prog m; exit $?")
    assert code == 1
    assert output == (
        "srun: error: Invalid task id, 4 >= ntasks\n"
        "srun: error: Line 1 of configuration file m invalid\n"
    )


def test_a_thousand_steps_are_recorded_and_the_oldest_are_counted(job: TwoNodes) -> None:
    code, _ = job.run("for i in $(seq 1005); do srun -N1 -n1 true; done; srun -N1 -n1 false; true")
    assert code == 0
    head, *steps = (job.job_dir(0) / "steps").read_text().splitlines()
    assert head.startswith("dlq-steps\t1\t6\t0\t")
    script_memory, script_cpu_us = map(int, head.split("\t")[4:])
    assert script_memory > 1 << 20
    assert script_cpu_us > 0
    assert [steps[0].split("\t")[0], steps[-1].split("\t")[0]] == ["6", "1005"]
    last = steps[-1].split("\t")
    assert (last[1:6], last[-1]) == (["false", "1", "1", "ended", "1"], "gpu-a")


def test_a_job_whose_main_process_is_gone_says_so_once(job: TwoNodes) -> None:
    # Tests beside this one have a job 17 of the same user, too.
    job.shared |= {"DLQ_JOB_ID": "1700", "SLURM_JOB_ID": "1700"}
    code, output = job.run("sleep 0.3; rm */steps.sock; srun -n1 true; exit $?")
    assert (code, output) == (1, "srun: error: the main process of job 1700 does not answer\n")


def test_many_steps_that_wait_are_all_run(counted_job: TwoNodes) -> None:
    code, output = counted_job.run(
        "for i in $(seq 300); do srun -Q -N1 -n1 --exact echo x & done; wait"
    )
    assert (code, output) == (0, "x\n" * 300)


# ---- strangers


def test_a_port_that_another_program_has_taken_ends_the_rank_to_be_run_again(
    job: TwoNodes,
) -> None:
    port = int(job.shared["DLQ_STEP_PEERS"].split(";")[1].split()[2])
    with socket.create_server(("127.0.0.1", port)):
        holder = job.start_rank(1, "--hold")
        output, _ = holder.communicate(timeout=60)
    assert holder.returncode == 99
    assert "Address already in use: the job is queued again" in output


def test_a_relay_to_another_rank_proves_nothing(job: TwoNodes) -> None:
    """A stranger that has the port of the second rank leads the first one back to itself."""
    first, second = (int(peer.split()[2]) for peer in job.shared["DLQ_STEP_PEERS"].split(";"))
    with socket.create_server(("127.0.0.1", second)) as listener:
        process = job.start_rank(
            0, "/bin/sh", "-c", "srun -w gpu-b -N1 -n1 id & sleep 3; kill -9 $!"
        )
        listener.settimeout(30)
        asker, _ = listener.accept()
        answerer = socket.create_connection(("127.0.0.1", first), timeout=30)
        with asker, answerer:
            asker.sendall(answerer.recv(32))
            answerer.sendall(asker.recv(64))
            with suppress(ConnectionError):
                assert answerer.recv(32) == b""
    assert "uid=" not in process.communicate(timeout=60)[0]


def test_connections_without_the_secret_keep_no_step_out(job: TwoNodes) -> None:
    """More than a node keeps at once, from a user who does not know the attempt's key."""
    process = job.start("sleep 1; srun -w gpu-b -N1 -n1 echo there; exit $?")
    port = int(job.shared["DLQ_STEP_PEERS"].split(";")[1].split()[2])
    while not (job.job_dir(1) / "steps.sock").exists():
        time.sleep(0.01)
    with ExitStack() as strangers:
        for _ in range(100):
            strangers.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
        assert process.communicate(timeout=60)[0] == "there\n"


@pytest.mark.parametrize("said", [b"", b"x" * 64, b"\0" * 4096])
def test_a_stranger_gets_a_challenge_and_nothing_else(job: TwoNodes, said: bytes) -> None:
    job.start_rank(1, "--hold")
    port = int(job.shared["DLQ_STEP_PEERS"].split(";")[1].split()[2])
    while not (job.job_dir(1) / "steps.sock").exists():
        time.sleep(0.01)
    with socket.create_connection(("127.0.0.1", port), timeout=30) as stranger:
        got = b""
        while len(got) < 32:
            piece = stranger.recv(4096)
            assert piece, "it closes without a challenge"
            got += piece
        with suppress(OSError):  # the other side may close at any byte
            stranger.sendall(said)
            stranger.shutdown(socket.SHUT_WR)
            while piece := stranger.recv(4096):
                got += piece
    assert len(got) == 32


# ---- terminals and listeners


def in_terminal(job: TwoNodes, command: str, talk: Callable[[int], bytes]) -> bytes:
    """What `command`, which runs in the job at a terminal, prints; `talk` has the other end."""
    process = job.start("sleep 600")
    while not (job.job_dir(0) / "steps.sock").exists():
        time.sleep(0.01)
    ours, theirs = os.openpty()
    with subprocess.Popen(
        ["/bin/sh", "-c", command],
        env={**job.environment(0), "PATH": f"{job.programs}:/usr/bin:/bin"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as client:
        os.close(theirs)
        said = talk(ours)
        client.wait(timeout=60)
    os.close(ours)
    process.kill()
    return said


def read_until(terminal: int, wanted: bytes) -> bytes:
    """All that comes, up to these bytes."""
    seen = b""
    while wanted not in seen:
        try:
            got = os.read(terminal, 4096)
        except OSError:
            got = b""
        assert got, seen
        seen += got
    return seen


def test_a_step_at_a_terminal_is_a_shell(job: TwoNodes) -> None:
    def talk(terminal: int) -> bytes:
        os.write(terminal, b"tty; sh -c 'echo it$((1+1))s; exec sleep 600'\n")
        seen = read_until(terminal, b"it2s")
        os.write(terminal, b"\x03")  # Ctrl-C ends the sleep and not the step
        os.write(terminal, b"echo en$((2+2))d; exit\n")
        return seen + read_until(terminal, b"en4d")

    seen = in_terminal(job, "srun -N1 -n1 -w gpu-b --pty sh", talk)
    assert b"/dev/pts/" in seen


def test_a_listener_sees_the_output_of_a_step_and_may_talk_to_it(job: TwoNodes) -> None:
    code, output = job.run(
        "mkfifo keep; srun -n2 -l sh -c 'while read x; do echo got $x; done' < keep > own &\n"
        "exec 3> keep; sleep 0.5\n"
        "(echo hello; sleep 0.5) 3>&- | sattach 17.0 > seen 3>&- & sleep 1\n"
        "exec 3>&-; wait; cat seen"
    )
    assert code == 0
    assert output == "got hello\ngot hello\n"
    own = (job.directory / "own").read_text()
    assert sorted(own.splitlines()) == ["0: got hello", "1: got hello"]


def test_a_listener_shows_the_layout_and_ends_as_the_step_does(job: TwoNodes) -> None:
    code, output = job.run(
        "srun -n3 sh -c 'sleep 1; exit 5' 2> /dev/null & sleep 0.4\n"
        "sattach --layout 17.0; sattach 17.0; echo code $?; sattach 17.9; exit $?"
    )
    assert code == 1
    assert output == (
        "Job step layout:\n\t3 tasks, 2 nodes (gpu-a,gpu-b)\n\n"
        "\tNode 0 (gpu-a), 2 task(s): 0 1 \n\tNode 1 (gpu-b), 1 task(s): 2 \n"
        "code 5\nsattach: error: Invalid job id specified\n"
    )

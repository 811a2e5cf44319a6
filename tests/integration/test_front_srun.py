"""`srun` and `salloc` through the user's server: stdin, terminal, signals, stops of the caller."""

import os
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlq_compat.install import FRONT
from support.front import Front
from support.harness import Daemons
from support.terminal import Terminal
from support.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not FRONT.exists(), reason="the front is not compiled (make setup)"),
]

INNER = """sh -c 'trap "exit 6" INT; stty size; echo be; echo gun; while :; do sleep 0.1; done'"""


@pytest.fixture(scope="module")
def front() -> Iterator[Front]:
    """One server for all, and no slow way."""
    root = Path(tempfile.mkdtemp(prefix="dlqfs", dir="/tmp"))
    try:
        with Daemons(root, agents=("n1",)).up() as daemons:
            (root / "f").mkdir()
            made = Front(daemons, root / "f")
            try:
                made.serve()
                made.only_fast()
                yield made
            finally:
                made.end()
    finally:
        shutil.rmtree(root)


def shell(front: Front) -> Terminal:
    """bash with job control on a terminal of its own."""
    bash = ["setsid", "--ctty", "--wait", "bash", "--norc", "--noprofile", "-i"]
    return Terminal(bash, {**front.environment, "PS1": "ready> "})


def holders(front: Front) -> list[str]:
    """The states of the server's processes, as the kernel names them."""
    return [Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] for pid in front.servers()]


@pytest.mark.parametrize(
    ("script", "code", "words"),
    [
        ("true", 0, ""),
        ("exit 3", 3, "srun: error: n1: task 0: Exited with exit code 3\n"),
        ("kill -9 $$", 137, "srun: error: n1: task 0: Killed\n"),
    ],
)
def test_srun_ends_as_its_task_does(front: Front, script: str, code: int, words: str) -> None:
    done = front.said("srun", "-G1", "sh", "-c", script)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", words)


@pytest.mark.parametrize("tasks", [1, 2])
def test_a_function_that_a_bash_exports_reaches_the_tasks(front: Front, tasks: int) -> None:
    function = {"BASH_FUNC_say%%": "() {  echo said $1\n}"}
    done = front.said("srun", "-G1", f"-n{tasks}", "bash", "-c", "say it", **function)
    assert (done.returncode, done.stdout, done.stderr) == (0, "said it\n" * tasks, "")
    none = front.said("srun", "-G1", "--export=NONE", "bash", "-c", "say it", **function)
    assert none.returncode == 127


def test_a_job_without_its_directory_starts_in_tmp_and_says_so(front: Front) -> None:
    words = "couldn't chdir to `/nowhere': No such file or directory: going to /tmp instead\n"
    line = f"slurmstepd-n1: error: {words}"
    file = front.root / "lost.txt"
    front.said("sbatch", "-W", "-G1", "--chdir=/nowhere", f"-o{file}", "--wrap=pwd")
    assert file.read_text() == f"{line}/tmp\n"
    for more in ((), ("-n1", "--unbuffered"), ("-n1", "-l")):
        done = front.said("srun", "-G1", "--chdir=/nowhere", *more, "pwd")
        assert (done.returncode, done.stderr.count(line)) == (0, 1)
        assert done.stdout.endswith("/tmp\n")
    lost = front.said("sbatch", "-W", "-G1", "--chdir=/nowhere", "--wrap=true")
    assert lost.returncode != 0, "its output file is below /nowhere, as in Slurm"


def shelled(front: Front, script: str) -> str:
    """What a shell prints that calls Slurm's commands."""
    done = subprocess.run(
        ["sh", "-ec", script], env=front.environment, cwd=front.root, text=True,
        capture_output=True, timeout=120, check=True,
    )  # fmt: skip
    return done.stdout


def test_the_callers_umask_is_the_jobs(front: Front) -> None:
    job = "sbatch -W -G1 -o masked.txt --wrap 'umask; srun sh -c umask; : > made.txt'"
    assert shelled(front, f"umask 027; {job} > said; cat masked.txt") == "0027\n0027\n"
    modes = {name: (front.root / name).stat().st_mode for name in ("masked.txt", "made.txt")}
    assert modes == dict.fromkeys(modes, 0o100640)
    assert shelled(front, "umask 002; srun -G1 sh -c umask") == "0002\n"
    said = shelled(front, "umask 007; dlq submit -G1 --wait --wrap 'umask > native.txt' > said")
    assert (said, (front.root / "native.txt").read_text()) == ("", "0007\n")


ASKED = "ulimit -S -n; ulimit -S -s; ulimit -S -t"


def test_the_callers_soft_limits_are_the_jobs_as_far_as_propagate_says(front: Front) -> None:
    lower = "ulimit -S -n 500; ulimit -S -s 4096; ulimit -S -t 1000"
    most = f"{resource.getrlimit(resource.RLIMIT_NOFILE)[1]}\n"
    own = front.said("sbatch", "-W", "-G1", "--propagate=NONE", "-onone.txt", f"--wrap={ASKED}")
    assert own.returncode == 0
    plain = (front.root / "none.txt").read_text()
    assert plain.startswith(most)
    for option, said in {
        "": "500\n4096\n1000\n",
        "--propagate": "500\n4096\n1000\n",
        "--propagate=NONE": plain,
        "--propagate=NOFILE,RLIMIT_CPU": f"500\n{plain.splitlines()[1]}\n1000\n",
    }.items():
        job = f"sbatch -W -G1 {option} -o limits.txt --wrap '{ASKED}' > said; cat limits.txt"
        assert shelled(front, f"{lower}; {job}") == said, option
    for one in ("-n1", "-n1 -l --label"):
        told = shelled(front, f"{lower}; srun -G1 {one} sh -c '{ASKED}'")
        assert told.replace("0: ", "") == "500\n4096\n1000\n"
    inside = "ulimit -S -n 300; srun --propagate=STACK sh -c 'ulimit -S -n; ulimit -S -s'"
    job = f"sbatch -W -G1 -o limits.txt --wrap \"{inside}; srun sh -c 'ulimit -S -n'\""
    assert shelled(front, f"{lower}; {job} > said; cat limits.txt") == "500\n4096\n300\n"


@pytest.mark.parametrize("program", ["sbatch", "srun"])
def test_a_limit_that_is_none_is_refused_as_slurm_refuses_it(front: Front, program: str) -> None:
    (front.root / "true").write_text("#!/bin/sh\n")
    done = front.said(program, "-G1", "--propagate=WHAT", "true")
    words = ("Bad rlimit name: WHAT", "--propagate=WHAT is not valid.")
    lines = "".join(f"{program}: error: {each}\n" for each in words)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", lines)


def test_stdin_goes_in_and_both_outputs_come_apart(front: Front) -> None:
    text = "é" * 300_000
    done = front.said("srun", "-G1", "sh", "-c", "cat; echo bad >&2", given=text)
    assert (done.returncode, done.stdout, done.stderr) == (0, text, "bad\n")


def test_a_signal_reaches_the_task(front: Front) -> None:
    script = "trap 'echo got; exit 7' USR1; echo up; while :; do sleep 0.1; done"
    process = front.start("srun", "-G1", "sh", "-c", script)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGUSR1)
    assert process.communicate(timeout=60)[0] == "got\n"
    assert process.returncode == 7


def test_with_its_caller_its_process_ends(front: Front) -> None:
    """So nobody tells the master any more that the client is there, and the job ends."""
    process = front.start("srun", "-G1", "-J", "left", "sleep", "1000")
    wait_until(
        lambda: "left" in front.said("squeue", "-h", "-t", "R", "-o", "%j").stdout,
        what="the job runs", timeout_s=60,
    )  # fmt: skip
    before = set(front.servers())
    process.kill()
    process.communicate(timeout=60)
    wait_until(lambda: before - set(front.servers()), what="one has gone", timeout_s=30)
    assert front.said("scancel", "--name", "left").returncode == 0


def test_a_pty_takes_ctrl_c_and_gives_the_exit_code(front: Front) -> None:
    with shell(front) as terminal:
        terminal.expect("ready> ")
        terminal.press(f"unset COLUMNS LINES; stty rows 33 cols 77; srun -G1 --pty {INNER}\n")
        terminal.expect("33 77\nbe\ngun\n")
        terminal.press("\x03")
        terminal.expect("Exited with exit code 6\n\x1b[?2004hready> ")
        terminal.press("echo code $?; stty -a | grep -o ' icanon'; exit\n")
        terminal.expect("code 6\n icanon\n")
        terminal.end()


def test_ctrl_c_of_the_terminal_asks_first(front: Front) -> None:
    with shell(front) as terminal:
        terminal.expect("ready> ")
        terminal.press("srun -G1 sh -c 'echo be; echo gun; exec sleep 1000'\n")
        terminal.expect("be\ngun\n")
        terminal.press("\x03")
        terminal.expect("interrupt (one more within 1 sec to abort)")
        terminal.shown = ""
        terminal.press("\x03")
        terminal.expect("ready> ")
        assert "sending Ctrl-C" in terminal.shown
        assert "forcing job termination" in terminal.shown
        terminal.press("exit\n")
        terminal.end()


def test_a_stopped_srun_leaves_the_keys_to_the_shell(front: Front) -> None:
    with shell(front) as terminal:
        terminal.expect("ready> ")
        terminal.press("srun -G1 sed -u s/^/got-/\n")
        terminal.press("one\n")
        terminal.expect("got-one\n")
        terminal.press("\x1a")
        terminal.expect("Stopped")
        terminal.expect("ready> ")
        wait_until(lambda: "T" in holders(front), what="its process is stopped", timeout_s=30)
        for number in range(5):  # a second reader of the terminal would get some of these
            terminal.press(f"echo back-$(({number}+10))\n")
            terminal.expect(f"back-{number + 10}\n")
        terminal.press("bg\n")
        time.sleep(0.3)
        terminal.press("echo still-$((1+1))\n")
        terminal.expect("still-2\n")
        terminal.press("fg\n")
        terminal.press("two\n")
        terminal.expect("got-two\n")
        terminal.shown = ""
        terminal.press("\x04")
        terminal.expect("ready> ")
        terminal.press("echo code $?; exit\n")
        terminal.expect("code 0\n")
        terminal.end()
    assert "T" not in holders(front)


def test_in_the_background_srun_takes_the_slow_way(front: Front) -> None:
    with shell(front) as terminal:
        terminal.expect("ready> ")
        terminal.press("srun -G1 cat & wait $!; echo code $?; exit\n")
        terminal.expect("code 127\n")  # there is none
        terminal.end()


def test_salloc_goes_through_the_server_only_where_it_starts_nothing(front: Front) -> None:
    done = front.said("salloc", "--no-shell", "-G1", "-J", "kept")
    assert "Granted job allocation" in done.stderr
    job_id = done.stderr.split()[-1]
    assert front.said("srun", f"--jobid={job_id}", "echo", "inside").stdout == "inside\n"
    assert front.said("scancel", job_id).returncode == 0
    assert front.said("salloc", "-G1", "true").returncode == 127
    assert front.said("salloc", "-G1", "true", "--no-shell").returncode == 127


def test_one_process_takes_srun_after_srun(front: Front) -> None:
    """But for a call that took long, after which another one is ready."""
    for _ in range(5):
        wait_until(lambda: len(front.servers()) >= 4, what="two spares", timeout_s=30)
        before = front.servers()
        for _ in range(5):
            assert front.said("srun", "-G1", "cat", given="word").stdout == "word"
        if set(before) <= set(front.servers()):
            return
    raise AssertionError("each srun ends its process")


def test_a_running_srun_outlives_its_server(front: Front) -> None:
    """The line to the master stays for it, by which it says that it is there."""
    process = front.start("srun", "-G1", "sh", "-c", "echo up; sleep 7; exit 3")
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    os.kill(front.server(), signal.SIGTERM)
    wait_until(lambda: len(front.servers()) == 2, what="it and the line are left", timeout_s=30)
    out, err = process.communicate(timeout=60)
    assert (out, err) == ("", "srun: error: n1: task 0: Exited with exit code 3\n")
    assert process.returncode == 3
    wait_until(lambda: front.servers() == [], what="nothing is left", timeout_s=30)

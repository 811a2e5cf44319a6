"""Output files: the program that writes them, and jobs on real daemons that name some."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlq_nodeagent.runtimes.process.shim_process import catches, read_start_ticks
from dlq_nodeagent.shim.binary import OUTPUT_NAME, ensure_program
from support.harness import Daemons
from support.waiting import wait_until

pytestmark = pytest.mark.integration
PROGRAM = str(ensure_program(OUTPUT_NAME))
CANNOT_OPEN = 53


def ran(*words: str, shell: str) -> subprocess.CompletedProcess[bytes]:
    """`dlq-output` over a line of shell."""
    argv = [PROGRAM, *words, "--", "/bin/sh", "-c", shell]
    return subprocess.run(argv, capture_output=True, timeout=60, check=False)


def test_both_streams_go_to_the_file_and_to_the_log(tmp_path: Path) -> None:
    file = tmp_path / "out"
    file.write_text("old\n")
    done = ran("truncate", str(file), shell="echo out; sleep 0.2; echo err >&2; exit 3")
    assert (done.returncode, done.stdout, done.stderr) == (3, b"out\nerr\n", b"")
    assert file.read_text() == "out\nerr\n"


@pytest.mark.parametrize("files", [("f",), ("f", "f")])
def test_both_streams_in_one_file_stand_in_the_order_in_which_they_were_written(
    tmp_path: Path, files: tuple[str, ...]
) -> None:
    paths = [str(tmp_path / name) for name in files]
    done = ran("truncate", *paths, shell="for i in 1 2 3 4 5 6 7; do echo o$i; echo e$i >&2; done")
    written = "".join(f"o{number}\ne{number}\n" for number in range(1, 8))
    assert (tmp_path / "f").read_text() == done.stdout.decode() == written


def test_stderr_has_a_file_of_its_own_and_append_keeps_what_was_there(tmp_path: Path) -> None:
    out, err = tmp_path / "out", tmp_path / "err"
    for _ in range(2):
        ran("append", str(out), str(err), shell="echo out; echo err >&2")
    assert (out.read_text(), err.read_text()) == ("out\n" * 2, "err\n" * 2)


def test_it_passes_signals_on_and_ends_as_the_program_did(tmp_path: Path) -> None:
    file = tmp_path / "out"
    line = "trap 'echo caught; exit 7' USR1; echo ready; while :; do sleep 0.05; done"
    with subprocess.Popen(
        [PROGRAM, "truncate", str(file), "--", "/bin/sh", "-c", line], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGUSR1)
        assert process.wait(30) == 7
    assert file.read_text() == "ready\ncaught\n"
    assert ran("append", str(file), shell="kill -TERM $$").returncode == -signal.SIGTERM


def test_a_writer_that_is_killed_does_not_take_the_job_along(tmp_path: Path) -> None:
    line = """
        grep -l dlq-output-file /proc/[0-9]*/comm 2>/dev/null | while IFS=/ read -r _ _ pid _; do
            grep -q "^PPid:[[:space:]]*$PPID$" /proc/$pid/status && kill -9 $pid
        done
        sleep 0.2; echo one; sleep 0.2; echo two; exit 4"""
    done = ran("truncate", str(tmp_path / "out"), shell=line)
    assert (done.returncode, done.stdout) == (4, b"one\ntwo\n")


def test_it_shows_the_kernel_that_it_takes_signals_for_its_program(tmp_path: Path) -> None:
    """Else a job that saves and leaves with 0 would count as one without a handler: as finished."""
    line = "echo ready; read go; trap"
    with subprocess.Popen(
        [PROGRAM, "truncate", str(tmp_path / "out"), "--", "/bin/sh", "-c", line],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT):
            assert catches(process.pid, read_start_ticks(process.pid) or 0, number)
        process.kill()


def test_a_broken_pipe_ends_a_program_as_it_does_without_files(tmp_path: Path) -> None:
    done = ran("truncate", str(tmp_path / "out"), shell="yes | head -n 1; echo after")
    assert done.stdout == b"y\nafter\n"


def test_missing_directories_are_made(tmp_path: Path) -> None:
    both = [str(tmp_path / "logs" / "17" / name) for name in ("out", "err")]
    done = ran("truncate,mkdir", *both, shell="echo here; echo there >&2")
    assert done.returncode == 0, done.stderr
    assert [Path(each).read_text() for each in both] == ["here\n", "there\n"]


_NO_FILE = "it is neither a plain file nor /dev/null"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("missing/out", "No such file or directory"), ("plain/out", "Not a directory"),
        ("directory", "Is a directory"), ("fifo", _NO_FILE), ("/dev/zero", _NO_FILE),
        ("/dev/full", _NO_FILE), ("/proc/self/comm", _NO_FILE),
    ],
)  # fmt: skip
def test_a_path_that_is_no_file_fails_the_start_and_says_why(
    tmp_path: Path, name: str, why: str
) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "plain").touch()
    os.mkfifo(tmp_path / "fifo")
    path = str(tmp_path / name)
    done = ran("append", path, shell="echo never")
    assert (done.returncode, done.stdout) == (CANNOT_OPEN, b"")
    assert f"dlq: cannot write the output file {path}: {why}" in done.stderr.decode()


def test_under_slurm_it_ends_by_the_signal_that_slurm_shows(tmp_path: Path) -> None:
    done = ran("append,slurm", str(tmp_path / "missing" / "out"), shell="echo never")
    assert (done.returncode, done.stdout) == (-CANNOT_OPEN, b"")
    assert ran("append,slurm", str(tmp_path / "out"), shell="exit 53").returncode == CANNOT_OPEN


@pytest.mark.skipif(os.getuid() != 0, reason="takes the rights of another user")
def test_a_link_to_the_file_of_another_user_opens_nothing(tmp_path: Path) -> None:
    for each in (tmp_path, *tmp_path.parents[:2]):
        each.chmod(0o755)
    mine = tmp_path / "mine"
    mine.write_text("mine\n")
    link = tmp_path / "link"
    link.symlink_to(mine)
    done = subprocess.run(
        ["/bin/sh", "-c", f"exec {PROGRAM} truncate {link} -- /bin/true"],
        capture_output=True,
        check=False,
        user=65534,
        group=65534,
        extra_groups=[],
        timeout=60,
    ) if os.access(PROGRAM, os.X_OK) else None  # fmt: skip
    assert done is not None
    assert done.returncode != 0
    assert mine.read_text() == "mine\n"


def test_a_burst_is_whole_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "out"
    done = ran("truncate", str(file), shell="head -c 50000000 /dev/zero")
    assert len(done.stdout) == 50_000_000
    assert file.stat().st_size == 50_000_000


def test_a_file_that_is_not_written_stops_no_program_and_says_how_much_is_missing(
    tmp_path: Path,
) -> None:
    file = tmp_path / "out"
    line = "echo $$; read go; head -c 5000000 /dev/zero; echo end; read go; echo last"
    with subprocess.Popen(
        [PROGRAM, "truncate", str(file), "--", "/bin/sh", "-c", line],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        (writer,) = (each for each in _children(process.pid) if each != pid)
        os.kill(writer, signal.SIGSTOP)  # as on a file system that hangs
        process.stdin.write(b"go\n")
        process.stdin.flush()
        assert len(process.stdout.read(5_000_004)) == 5_000_004, "the log has all of it"
        os.kill(writer, signal.SIGCONT)
        wait_until(lambda: file.stat().st_size >= 1 << 18, what="the writer's pipe in the file")
        process.stdin.write(b"go\n")
        process.stdin.flush()
        assert process.wait(60) == 0
    text = file.read_bytes()
    assert b"bytes were not written: the file system is too slow]\n" in text
    assert text.endswith(b"last\n")


def _children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(each) for each in listed.split()]


# ---- jobs


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    root = Path(tmp_path_factory.mktemp("output"))
    root.chmod(0o755)
    with Daemons(root, ("node1",)).up() as up:
        yield up


def submitted(daemons: Daemons, *arguments: str) -> str:
    return daemons.said("submit", "--parsable", *arguments).strip()


def test_a_job_writes_its_files_below_its_directory(daemons: Daemons, tmp_path: Path) -> None:
    flags = ("-D", str(tmp_path), "-J", "train", "-o", "%x-%j-%N.out", "-e", "err-%4j.txt")
    job = submitted(daemons, *flags, "--", "/bin/sh", "-c", "echo out; echo err >&2; exit 4")
    assert daemons.dlq("wait", job).code == 4
    assert (tmp_path / f"train-{job}-node1.out").read_text() == "out\n"
    assert (tmp_path / f"err-{int(job):04}.txt").read_text() == "err\n"
    assert sorted(daemons.said("logs", job).split()) == ["err", "out"]


def test_a_script_for_slurm_writes_slurms_file(daemons: Daemons, tmp_path: Path) -> None:
    script = tmp_path / "hello.sh"
    script.write_text("#!/bin/sh\n#SBATCH --gpus=1\necho hello\n")
    flags = ("--compat", "slurm", "-D", str(tmp_path))
    job = submitted(daemons, *flags, str(script))
    assert daemons.dlq("wait", job).code == 0
    assert (tmp_path / f"slurm-{job}.out").read_text() == "hello\n"
    script.write_text("#!/bin/sh\n#SBATCH --gpus=1 --array=3-4\necho hello\n")
    array = submitted(daemons, *flags, str(script))
    assert daemons.dlq("wait", array).code == 0
    assert (tmp_path / f"slurm-{array}_3.out").read_text() == "hello\n"


def test_a_requeued_job_goes_on_in_its_file(daemons: Daemons, tmp_path: Path) -> None:
    file = tmp_path / "out"
    file.write_text("old\n")
    shell = "echo $DLQ_RESTART_COUNT; [ $DLQ_RESTART_COUNT = 1 ] || exit 99"
    job = submitted(daemons, "-o", str(file), "--", "/bin/sh", "-c", shell)
    assert daemons.dlq("wait", job).code == 0
    assert file.read_text() == "0\n1\n"


def test_a_file_that_cannot_be_opened_fails_the_job_and_its_log_says_why(
    daemons: Daemons, tmp_path: Path
) -> None:
    (tmp_path / "plain").touch()
    job = submitted(daemons, "-o", f"{tmp_path}/plain/out", "--", "/bin/true")
    assert daemons.dlq("wait", job).code == CANNOT_OPEN
    assert "cannot write the output file" in daemons.said("logs", job)


def test_a_script_of_slurms_fails_as_there(daemons: Daemons, tmp_path: Path) -> None:
    words = ("sbatch", "-W", "--parsable", "-G1", "-o", f"{tmp_path}/missing/out", "--wrap", "true")
    said = daemons.dlq("slurm", *words)
    job = said.out.strip()
    assert said.code == 1
    told = daemons.said("slurm", "sacct", "-nXP", "-o", "State,ExitCode,Reason", "-j", job)
    assert told == "FAILED|0:53|JobLaunchFailure\n"


def test_a_file_goes_on_while_the_agent_is_away(daemons: Daemons, tmp_path: Path) -> None:
    file, go = tmp_path / "out", tmp_path / "go"
    shell = f"echo first; while [ ! -e {go} ]; do sleep 0.1; done; echo second"
    job = submitted(daemons, "-o", str(file), "--", "/bin/sh", "-c", shell)
    wait_until(lambda: file.exists() and file.read_text() == "first\n", what="output")
    daemons.kill("node1")
    go.touch()
    wait_until(lambda: file.read_text() == "first\nsecond\n", what="output")
    daemons.start("node1")
    assert daemons.dlq("wait", job).code == 0
    assert file.read_text() == "first\nsecond\n"


def test_the_tasks_of_an_array_append_to_one_file(daemons: Daemons, tmp_path: Path) -> None:
    """Eight at a time. For thousands of writers without an agent see fault/test_output_disks.py."""
    file = tmp_path / "all"
    flags = ("-a", "0-95", "-o", str(file), "--open-mode", "append")
    shell = "echo task $DLQ_ARRAY_TASK_ID begins; echo task $DLQ_ARRAY_TASK_ID ends"
    array = submitted(daemons, *flags, "--", "/bin/sh", "-c", shell)
    assert daemons.dlq("wait", array).code == 0
    wanted = [f"task {each} {what}" for each in range(96) for what in ("begins", "ends")]
    assert sorted(file.read_text().splitlines()) == sorted(wanted)
    said = daemons.dlq("submit", "-a", "0-1", "--hold", "-o", str(file), "--", "/bin/true")
    assert "all tasks of the array write this file" in said.err


def test_with_dev_null_alone_the_job_runs_as_without_files(daemons: Daemons) -> None:
    shell = "tr '\\0' ' ' < /proc/$PPID/cmdline"
    for flags in (("-o", "/dev/null"), ("-o", "/dev/null", "-e", "/dev/null"), ()):
        job = submitted(daemons, *flags, "--", "/bin/sh", "-c", shell)
        assert daemons.dlq("wait", job).code == 0
        assert OUTPUT_NAME not in daemons.said("logs", job)


def test_an_array_of_sbatch_is_told_in_slurms_own_line(daemons: Daemons, tmp_path: Path) -> None:
    script = tmp_path / "hello.sh"
    script.write_text("#!/bin/sh\n#SBATCH --gpus=1 --array=0-1 -o /dev/null\necho hello\n")
    said = daemons.said("slurm", "sbatch", str(script))
    assert said.split()[:3] == ["Submitted", "batch", "job"]
    assert said.split()[3:] == [said.split()[-1]]
    assert said.split()[-1].isdecimal()


@pytest.mark.parametrize("flag", [("-o", "dir/"), ("-e", "a\nb"), ("--open-mode", "w")])
def test_a_bad_word_is_named_at_submission(daemons: Daemons, flag: tuple[str, str]) -> None:
    said = daemons.dlq("submit", *flag, "--", "/bin/true")
    assert said.code == 2
    assert flag[0].lstrip("-")[:2] in said.err


def test_a_directory_with_the_number_of_the_job_is_made(daemons: Daemons, tmp_path: Path) -> None:
    job = submitted(daemons, "-o", f"{tmp_path}/logs/%j/out", "--", "/bin/echo", "here")
    assert daemons.dlq("wait", job).code == 0
    assert (tmp_path / "logs" / job / "out").read_text() == "here\n"
    plain = submitted(daemons, "-o", f"{tmp_path}/missing/out", "--", "/bin/echo", "here")
    assert daemons.dlq("wait", plain).code == CANNOT_OPEN

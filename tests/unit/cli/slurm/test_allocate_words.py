"""The words of `srun` and `salloc`: which go to the allocation, which to the step."""

from __future__ import annotations

import os
import subprocess
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dlq_cli.exit_codes import Ended
from dlq_cli.slurm.allocate import allocation, holder
from dlq_cli.slurm.allocate.words import split
from dlq_common.text.soft_limits import UNLIMITED


def test_options_are_shared_out_and_the_command_is_left_alone() -> None:
    made = split(["-n4", "-l", "-G", "2", "--pty", "-t", "5", "prog", "-n", "9"], "srun")
    assert made.allocation == ["--ntasks=4", "--gpus=2", "--time=5"]
    assert made.step == ["--ntasks=4", "--label"]
    assert made.own == {"--pty": ""}
    assert made.command == ["prog", "-n", "9"]


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        (["-I5", "x"], "--immediate", "5"),
        (["-I", "x"], "--immediate", ""),
        (["--immediate=7", "x"], "--immediate", "7"),
        (["-luN2", "x"], "--nodes", "2"),
        (["--ntasks-per-n=3", "x"], "--ntasks-per-node", "3"),
        (["-J", "name", "--", "x"], "--job-name", "name"),
    ],
)
def test_options_are_read_as_getopt_reads_them(words: list[str], name: str, value: str) -> None:
    made = split(words, "srun")
    assert made.given[name] == value
    assert made.command == ["x"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--nosuch", "x"], "srun: unrecognized option '--nosuch'"),
        (["-y", "x"], "srun: invalid option -- 'y'"),
        (["-n"], "srun: option '-n' requires an argument"),
    ],
)
def test_a_wrong_option_is_told_as_slurm_tells_it(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Ended) as ended:
        split(words, "srun")
    assert ended.value.code == 255
    assert capsys.readouterr().err.splitlines()[0] == said


def test_the_callers_variables_reach_a_shell_whole_and_the_nodes_own_stay() -> None:
    text = holder.kept(
        {"A": "it's\n$HOME", "SLURM_JOB_ID": "9", "DLQ_FENCE": "1", "B%%": "x"}, 0o022, {}
    )
    assert b"SLURM" not in text
    assert b"DLQ_" not in text
    said = subprocess.run(
        ["/bin/sh", "-c", text.decode() + 'printf %s "$A"'], capture_output=True, check=True
    )
    assert said.stdout == b"it's\n$HOME"


FUNCTION = {"BASH_FUNC_a-b%%": '() {  echo "it\'s $1"\n}'}
LIMITS = {"STACK": 4 << 20, "NOFILE": 1000, "CORE": 1024, "CPU": UNLIMITED, "NPROC": 10**5}
CALL = ["bash", "-c", "a-b me"]


def own_step(place: Path, directory: str) -> subprocess.CompletedProcess[bytes]:
    """The one step of an allocation, which calls the function."""
    os.mkfifo(place / "end")
    rank = {"DLQ_BEAT_FILE": f"{place}/beat", "DLQ_SLURM_BIN": "", "PATH": os.environ["PATH"]}
    with subprocess.Popen(["cat", f"{place}/end"], stdout=subprocess.DEVNULL):
        words = holder.own_step(CALL, FUNCTION, directory)
        return subprocess.run(
            words, capture_output=True, env={**rank, "SLURMD_NODENAME": "n1"}, check=False
        )


def test_a_function_that_a_bash_exports_reaches_the_one_step(tmp_path: Path) -> None:
    said = own_step(tmp_path, str(tmp_path))
    assert (said.stdout, said.stderr) == (b"it's me\n", b"")


def test_the_one_step_tells_of_a_directory_that_is_missing(tmp_path: Path) -> None:
    said = own_step(tmp_path, "/nowhere")
    words = b"couldn't chdir to `/nowhere': No such file or directory: going to /tmp instead\n"
    assert (said.stdout, said.stderr) == (b"it's me\n", b"slurmstepd-n1: error: " + words)


def test_a_function_that_a_bash_exports_reaches_a_step_beside_others(tmp_path: Path) -> None:
    rank = {"DLQ_BEAT_FILE": f"{tmp_path}/beat", "DLQ_SLURM_BIN": "", "PATH": os.environ["PATH"]}
    subprocess.run(holder.keep("k"), input=holder.kept(FUNCTION, 0o022, {}), env=rank, check=True)
    words = holder.step("k", ["--overlap", "--", *CALL])
    said = subprocess.run(words, capture_output=True, env=rank, check=True)
    assert said.stdout == b"it's me\n"


@pytest.mark.parametrize("shell", ["dash", "bash --posix"])
def test_a_step_beside_others_has_the_umask_and_the_limits_of_its_caller(
    tmp_path: Path, shell: str
) -> None:
    rank = {"DLQ_BEAT_FILE": f"{tmp_path}/beat", "DLQ_SLURM_BIN": "", "PATH": os.environ["PATH"]}
    subprocess.run(holder.keep("k"), input=holder.kept({}, 0o027, LIMITS), env=rank, check=True)
    asked = "umask; ulimit -S -s; ulimit -S -n; ulimit -H -n; ulimit -S -c; ulimit -S -t"
    words = ["bash", "-c", 'ulimit -n 500; exec "$@"', "x", *shell.split()]
    words += holder.step("k", ["--", "sh", "-c", asked])[1:]
    said = subprocess.run(words, capture_output=True, env=rank, check=True)
    assert said.stderr == b""
    assert said.stdout.split() == [b"0027", b"4096", b"500", b"500", b"2", b"unlimited"]


@pytest.mark.parametrize(
    "command",
    [holder.own_step(["a b"], {}, "/"), holder.step("k", ["x"]), holder.end(3), holder.keep("k")],
)
def test_scripts_are_correct_shell(command: list[str]) -> None:
    for script in (command[2], holder.HOLD):
        subprocess.run(["/bin/sh", "-n", "-c", script], check=True)


def test_a_ctrl_c_that_no_handler_takes_gives_the_nodes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One just after `Granted job allocation` left them taken until the silence."""
    cancelled: list[str] = []
    jobs = SimpleNamespace(cancel=lambda job_id, *, kill: cancelled.append(job_id))
    app: Any = SimpleNamespace(connection=lambda: None)
    monkeypatch.setattr(allocation, "Attendance", lambda *_: nullcontext())
    monkeypatch.setattr(allocation, "watch_jobs", lambda *_: iter(()))
    monkeypatch.setattr(allocation, "Jobs", lambda _: jobs)
    made = allocation.KeptAllocation(app, "salloc")
    made.job_id = "17"
    with pytest.raises(KeyboardInterrupt), made.kept():
        raise KeyboardInterrupt
    assert cancelled == ["17"]
    with made.kept():
        pass
    assert cancelled == ["17"]

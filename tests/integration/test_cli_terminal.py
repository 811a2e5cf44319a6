"""On a terminal: questions before many jobs end, colours, live pictures, and Ctrl-C that
detaches.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlq_cli.commands.here.completion import SHELLS, completion_script
from support.extent import spread
from support.fake_master import FakeMaster
from support.terminal import Terminal
from support.wire_jobs import a_job, a_node, an_attempt, an_event

pytestmark = pytest.mark.integration


@pytest.fixture
def master() -> Iterator[FakeMaster]:
    running = FakeMaster()
    running.role = "operator"
    running.jobs = {"17": a_job(17, "running", attempt_count=1), "18": a_job(18)}
    running.attempts["17"] = [an_attempt(17, 1)]
    running.events = [an_event(1, "attempt_running", 17, attempt=1)]
    running.nodes = {"gpu01": a_node("gpu01", attempts=["17.1"])}
    yield running
    running.stop()


@pytest.fixture
def home(master: FakeMaster, tmp_path: Path) -> Path:
    return master.home(tmp_path / "home")


def dlq(home: Path, *arguments: str) -> Terminal:
    program = [sys.executable, "-m", "dlq_cli.main", *arguments]
    return Terminal(program, {"DLQ_HOME": str(home), "DLQ_LOGIN_SOCKET": str(home / "none")})


@pytest.mark.parametrize(("answer", "code", "cancelled"), spread([("y", 0, 2), ("n", 1, 0)], 1))
def test_cancelling_several_jobs_asks_first(
    answer: str, code: int, cancelled: int, master: FakeMaster, home: Path
) -> None:
    with dlq(home, "cancel", "17", "18") as terminal:
        terminal.expect("2 jobs would end: 17, 18. Go on? [y/N]: ")
        terminal.press(f"{answer}\n")
        assert terminal.end() == code
    asked = [job_id for ask in master.requests("CancelJobs") for job_id in ask.job_ids]
    assert len(asked) == cancelled


def test_one_job_is_cancelled_without_a_question(master: FakeMaster, home: Path) -> None:
    with dlq(home, "cancel", "18") as terminal:
        assert terminal.end() == 0
    assert len(master.requests("CancelJob")) == 1


def test_an_admin_sees_the_impact_before_the_question(master: FakeMaster, home: Path) -> None:
    with dlq(home, "admin", "node", "fence", "gpu01", "--reason", "off") as terminal:
        terminal.expect("fencing gpu01 (up) gives up 1 attempt (17.1)")
        terminal.press("n\n")
        assert terminal.end() == 1
    assert master.requests("FenceNode") == []


def test_states_are_coloured_and_times_are_ages(home: Path) -> None:
    with dlq(home, "status") as terminal:
        terminal.expect("\x1b[32mrunning\x1b[0m")
        assert terminal.end() == 0
    with dlq(home, "show", "17") as terminal:
        terminal.expect(" ago")
        assert terminal.end() == 0


def test_the_live_list_is_redrawn_and_ctrl_c_leaves_it(master: FakeMaster, home: Path) -> None:
    with dlq(home, "status", "-w", "17") as terminal:
        terminal.expect("running")
        master.tell(an_event(2, "attempt_pausing", 17), a_job(17, "pausing"))
        terminal.expect("pausing")
        terminal.interrupt()
        assert terminal.end() == 130
        assert "detached; job 17 goes on. To end: dlq cancel 17" in terminal.shown
    assert master.requests("CancelJob") == []


HOSTILE = b"\x1b]0;title\x07\x1b[2J\x1b[32mgreen\x1b[0m done\n"


@pytest.mark.parametrize("follow", spread([((),), (("-f",),)], 1))
def test_output_on_a_terminal_is_text_and_colours(
    master: FakeMaster, home: Path, follow: tuple[str, ...]
) -> None:
    master.jobs["17"] = a_job(17, "completed", exit_code=0, attempt_count=1)
    master.logs[("17", 1, 0)] = HOSTILE
    with dlq(home, "logs", *follow, "17") as terminal:
        assert terminal.end() == 0
        assert terminal.shown.strip() == "\x1b[32mgreen\x1b[0m done"
    with dlq(home, "logs", *follow, "--raw", "17") as terminal:
        assert terminal.end() == 0
        assert terminal.shown.strip() == HOSTILE.decode().strip()


def test_output_in_a_pipe_is_what_the_job_wrote(master: FakeMaster, home: Path) -> None:
    master.logs[("17", 1, 0)] = HOSTILE
    done = subprocess.run(
        [sys.executable, "-m", "dlq_cli.main", "--home", str(home), "logs", "17"],
        capture_output=True,
    )
    assert done.stdout == HOSTILE


def test_ctrl_c_leaves_the_output_and_not_the_job(master: FakeMaster, home: Path) -> None:
    master.logs[("17", 1, 0)] = b"hello\n"
    master.log_ended = False
    with dlq(home, "logs", "-f", "17") as terminal:
        terminal.expect("hello")
        terminal.interrupt()
        assert terminal.end() == 130
        assert "To end: dlq cancel 17" in terminal.shown
    assert master.requests("CancelJob") == []


def test_a_reader_that_has_seen_enough_is_no_error(master: FakeMaster, home: Path) -> None:
    master.jobs = {str(number): a_job(number) for number in range(1, 5001)}
    line = f"{sys.executable} -m dlq_cli.main status | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", line], env={"DLQ_HOME": str(home), "PATH": "/usr/bin:/bin"},
        capture_output=True, check=True, text=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "0"
    assert done.stderr == ""


def test_a_reader_that_has_seen_enough_ends_a_followed_output(
    master: FakeMaster, home: Path
) -> None:
    master.logs[("17", 1, 0)] = b"one\ntwo\n"
    master.log_ended = False
    line = f"{sys.executable} -m dlq_cli.main logs -f 17 | head -n 1; echo ${{PIPESTATUS[0]}}"
    running = subprocess.Popen(
        ["bash", "-c", line], env={"DLQ_HOME": str(home), "PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert running.stdout is not None
    assert running.stdout.readline() == "one\n"
    master.write_log(("17", 1, 0), b"three\n" * 20_000)
    assert running.communicate(timeout=60) == ("0\n", "")


@pytest.mark.parametrize("shell", SHELLS)
def test_the_completion_script_is_one_that_its_shell_takes(shell: str, tmp_path: Path) -> None:
    script = completion_script(shell)
    assert "_DLQ_COMPLETE" in script
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "script").write_text(script)
    subprocess.run([program, "-n", str(tmp_path / "script")], check=True)


@pytest.mark.parametrize(
    ("words", "completed"),
    spread(
        [
            (("spec", "c"), ["check", "convert"]),
            (("spec", "check", "--e"), ["--explain"]),
            (("spec", "convert", "--to", "t"), ["toml"]),
            (("config", "s"), ["set"]),
            (("config", "set", "pat"), ["patience_s"]),
            (("doctor", "--no"), ["--node", "--no-node"]),
            (("diff", "--ex"), ["--exit-code"]),
            (("resubmit", "--un"), ["--unset"]),
            (("cancel", "--ki"), ["--kill"]),
        ],
        3,
    ),
)
def test_completion_covers_what_follows_a_command(
    words: tuple[str, ...], completed: list[str]
) -> None:
    environ = {
        "_DLQ_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(("dlq", *words)),
        "COMP_CWORD": str(len(words)), "PATH": "/usr/bin:/bin",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", "from dlq_cli.main import main; main()"],
        env=environ, capture_output=True, check=True, text=True,
    )  # fmt: skip
    assert [line.partition(",")[2] for line in done.stdout.splitlines()] == completed


def test_bash_completes_commands_and_flags(tmp_path: Path) -> None:
    (tmp_path / "dlq").write_text(f'#!/bin/sh\nexec {sys.executable} -m dlq_cli.main "$@"\n')
    (tmp_path / "dlq").chmod(0o755)
    (tmp_path / "script").write_text(completion_script("bash"))
    ask = (
        f". {tmp_path}/script; COMP_WORDS=(dlq {{}}); COMP_CWORD=1; "
        "_dlq_completion dlq; echo ${{COMPREPLY[*]}}"
    )
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin"}

    def completed(word: str) -> list[str]:
        done = subprocess.run(
            ["bash", "-c", ask.format(word)],
            env=environ,
            capture_output=True,
            check=True,
            text=True,
        )
        return done.stdout.split()

    assert completed("sta") == ["status", "stacks"]
    assert completed("--ho") == ["--home"]
    assert completed("doc") == ["doctor"]
    assert completed("res") == ["resume", "resubmit"]

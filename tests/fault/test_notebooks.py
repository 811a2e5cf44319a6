"""`dlq notebook` on real daemons, with a stand-in for Jupyter."""

import os
import re
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.fake_jupyter import install_jupyter
from support.harness import BIN, Daemons
from support.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long("unit/cli/interactive/test_notebook.py"),
]
DLQ = str(BIN / "dlq")
SILENCE = 'attend_silence = "12s"'  # half a minute by default


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    """A master and one node with eight virtual GPUs."""
    made = Daemons(tmp_path_factory.mktemp("notebooks"), ("n1",), settings=f"{SILENCE}\n")
    with made.up():
        yield made


@pytest.fixture
def path(tmp_path: Path) -> str:
    """The PATH of a job in whose environment jupyter is installed."""
    install_jupyter(tmp_path)
    return f"{tmp_path}:{os.environ['PATH']}"


def job_of(process: "subprocess.Popen[bytes]") -> str:
    assert process.stderr is not None
    found = re.search(rb"job (\d+) is queued", process.stderr.readline())
    assert found
    return found[1].decode()


def page_of(process: "subprocess.Popen[bytes]") -> str:
    """The page at the address that it prints."""
    assert process.stdout is not None
    url = process.stdout.readline().decode().strip()
    with urllib.request.urlopen(url, timeout=60.0) as answer:
        said: bytes = answer.read()
        return said.decode()


def is_over(daemons: Daemons, job_id: str) -> bool:
    return "cancelled" in daemons.said("status", job_id)


def test_two_presses_end_the_notebook_and_its_job(daemons: Daemons, path: str) -> None:
    words = (DLQ, "notebook", "-G", "1", "--env", f"PATH={path}")
    with daemons.begun(*words, stdin=subprocess.DEVNULL) as process:
        job_id = job_of(process)
        assert page_of(process) == f"notebook of job {job_id}: lab"
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        while b"press again" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60.0) == 130
    wait_until(lambda: is_over(daemons, job_id), what="the job is cancelled", timeout_s=60.0)


def test_a_kept_one_is_opened_again(daemons: Daemons, path: str) -> None:
    words = (DLQ, "notebook", "-G", "1", "--keep", "--env", f"PATH={path}")
    with daemons.begun(*words, stdin=subprocess.DEVNULL) as process:
        job_id = job_of(process)
        page_of(process)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60.0) == 130
    with daemons.begun(DLQ, "notebook", "--job", job_id, stdin=subprocess.DEVNULL) as process:
        assert page_of(process) == f"notebook of job {job_id}: lab"
        daemons.said("cancel", "--kill", job_id)
        assert process.wait(timeout=60.0) != 0


def test_one_whose_command_was_killed_lives_by_the_command_that_opens_it_again(
    daemons: Daemons, path: str
) -> None:
    words = (DLQ, "notebook", "-G", "1", "--env", f"PATH={path}")
    with daemons.begun(*words, stdin=subprocess.DEVNULL) as process:
        job_id = job_of(process)
        page_of(process)
        process.kill()
    again = (DLQ, "notebook", "--job", job_id)
    with daemons.begun(*again, stdin=subprocess.DEVNULL) as process:
        assert page_of(process) == f"notebook of job {job_id}: lab"
        heard = daemons.ran(*(DLQ, "wait", "--timeout", "18s", job_id), stdin=b"", timeout_s=90.0)
        assert heard.returncode == 124, "more than 12 s without its first command have ended it"
        assert not is_over(daemons, job_id)
        process.kill()
    wait_until(lambda: is_over(daemons, job_id), what="nobody is there", timeout_s=90.0)


def test_without_jupyter_the_job_says_so(daemons: Daemons) -> None:
    words = (DLQ, "notebook", "-G", "1", "--env", "PATH=/usr/bin:/bin")
    done = daemons.ran(*words, stdin=b"", timeout_s=60.0)
    assert done.returncode == 127
    assert b"jupyter is not installed" in done.stdout


def test_a_restart_of_the_agent_makes_the_line_anew(daemons: Daemons, path: str) -> None:
    words = (DLQ, "notebook", "-G", "1", "--env", f"PATH={path}")
    with daemons.begun(*words, stdin=subprocess.DEVNULL) as process:
        job_id = job_of(process)
        page_of(process)
        daemons.kill("n1")
        daemons.start("n1")
        daemons.wait_for("n1")
        assert page_of(process) == f"notebook of job {job_id}: lab"
        daemons.said("cancel", "--kill", job_id)
        assert process.wait(timeout=60.0) != 0

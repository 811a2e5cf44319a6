"""`import dlq` on a real master and agent: the examples of its page, and restarts of both."""

from __future__ import annotations

import doctest
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import dlq
from support.harness import BRIEF_SILENCE_S, Daemons
from support.reference_pages import ROOT
from support.waiting import wait_until

pytestmark = pytest.mark.integration

PATIENCE_S = 120.0
# Prints, waits for a file, prints, and ends with a code.
STEPS = """\
import os, sys, time
print("begun", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
print("seen", flush=True)
sys.exit(int(sys.argv[2]))
"""


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    root = tmp_path_factory.mktemp("live")
    with Daemons(root, ("n1",), silence_s=BRIEF_SILENCE_S).up() as running:
        yield running


@pytest.fixture
def at_home(
    daemons: Daemons, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dlq.Cluster]:
    for name, value in daemons.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    with dlq.connect(patience=60.0) as cluster:
        yield cluster


def stepping(cluster: dlq.Cluster, go_on: Path, code: int = 0) -> dlq.Job:
    return cluster.submit(["python3", "-u", "-c", STEPS, go_on, str(code)], gpus=1)


def test_the_examples_of_the_page_are_true(at_home: dlq.Cluster) -> None:
    page = (ROOT / "docs/using/python.md").read_text()
    text = "\n".join(block.partition("```")[0] for block in page.split("```pycon\n")[1:])
    examples = doctest.DocTestParser().get_doctest(text, {}, "python.md", None, None)
    assert len(examples.examples) > 10
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=flags, verbose=False)
    runner.run(examples, out=said.append)
    assert runner.failures == 0, "".join(said)


def test_a_follower_and_a_waiter_outlast_the_master_and_the_agent(
    daemons: Daemons, at_home: dlq.Cluster, tmp_path: Path
) -> None:
    go_on = tmp_path / "go_on"
    job = stepping(at_home, go_on, 5)
    lines: list[str] = []
    follower = threading.Thread(target=lambda: lines.extend(job.logs(follow=True)), daemon=True)
    follower.start()
    ended = job.future()
    job.wait(PATIENCE_S, until="running")
    daemons.kill("master")
    daemons.kill("n1")
    assert not ended.done()
    for name in ("master", "n1"):
        daemons.start(name)
        daemons.wait_for(name)
    assert not ended.done()
    go_on.touch()
    assert ended.result(PATIENCE_S).exit_code == 5
    follower.join(PATIENCE_S)
    assert lines == ["begun", "seen"]
    with pytest.raises(dlq.JobFailed) as failed:
        job.result()
    assert (failed.value.exit_code, failed.value.lines[-1]) == (5, "seen")


def test_a_job_that_is_cancelled_or_paused_says_so(at_home: dlq.Cluster, tmp_path: Path) -> None:
    job = stepping(at_home, tmp_path / "never")
    job.wait(PATIENCE_S, until="running")
    with pytest.raises(dlq.WorkWouldBeLost):
        job.pause()
    job.pause(accept_loss=True)
    wait_until(lambda: job.state == "held", what="it is paused")
    assert [reason.code for reason in job.why().reasons] == ["paused"]
    job.resume()
    job.wait(PATIENCE_S, until="running")
    job.cancel(kill=True)
    with pytest.raises(dlq.JobCancelled):
        job.result(PATIENCE_S)


def test_an_array_is_waited_for_as_one(at_home: dlq.Cluster) -> None:
    array = at_home.submit_array(["sh", "-c", "exit $DLQ_ARRAY_TASK_ID"], array="0-2", gpus=1)
    assert len(array.wait(PATIENCE_S)) == 3
    assert [task.facts["exit_code"] for task in array] == [0, 1, 2]
    with pytest.raises(dlq.JobFailed) as failed:
        array.result()
    assert failed.value.job_id == array[1].id
    assert [task.id for task in at_home.array(array.id)] == [task.id for task in array]

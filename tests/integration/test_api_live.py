"""`import dlq` on a real master and agent: the examples of its page, and restarts of both."""

from __future__ import annotations

import asyncio
import doctest
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, as_completed
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
    assert {future.result(PATIENCE_S).job_id for future in as_completed(array.futures())} == {
        task.id for task in array
    }
    assert f'<th style="text-align:left">{array[1].id}</th>' in array._repr_html_()


# --- functions ------------------------------------------------------------------------------------


def squares() -> Callable[[int], int]:
    """A function that jobs cannot import: it travels by value."""
    base = 2
    return lambda number: number**base


def test_functions_are_one_array_and_their_values_come_in_order(
    at_home: dlq.Cluster, tmp_path: Path
) -> None:
    pytest.importorskip("cloudpickle")
    with at_home.executor(gpus=1, directory=tmp_path / "calls", concurrent=4) as executor:
        found = executor.map_array(squares(), range(8))
        assert {future.job.array_id for future in found} == {found[0].job.array_id}
        assert sorted(each.result() for each in as_completed(found, PATIENCE_S)) == [
            number**2 for number in range(8)
        ]
        assert list(executor.map(squares(), [3, 2], timeout=PATIENCE_S)) == [9, 4]
    assert list((tmp_path / "calls").iterdir()) == []
    with pytest.raises(RuntimeError, match="takes no more calls"):
        executor.submit(squares(), 1)


def test_a_function_that_raises_and_a_job_that_dies_are_told_apart(
    at_home: dlq.Cluster, tmp_path: Path
) -> None:
    pytest.importorskip("cloudpickle")

    def fail(how: str) -> None:
        import os
        import signal
        import time

        if how == "raise":
            raise ValueError("not this one")
        if how == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(1000)

    executor = dlq.Executor(at_home, gpus=1, directory=tmp_path / "calls")
    raised, died, sleeps = (executor.submit(fail, how) for how in ("raise", "die", "sleep"))
    with pytest.raises(ValueError, match="not this one") as told:
        raised.result(PATIENCE_S)
    assert isinstance(told.value.__cause__, dlq.RemoteTraceback)
    with pytest.raises(dlq.JobFailed) as failed:
        died.result(PATIENCE_S)
    assert failed.value.exit_signal == 9
    sleeps.job.wait(PATIENCE_S, until="running")
    with pytest.raises(KeyboardInterrupt) as stopped, executor:
        raise KeyboardInterrupt  # waits for nothing
    assert stopped.value.__notes__ == ["1 job goes on"]
    assert not sleeps.done()
    executor.shutdown(wait=True, cancel_futures=True)
    with pytest.raises(CancelledError):
        sleeps.result(PATIENCE_S)
    assert sleeps.cancelled()
    kept = [each.job.id for each in (raised, died)]
    assert len(list((tmp_path / "calls").iterdir())) == len(kept)  # not that of the cancelled one


def test_coroutines_have_the_same_names(at_home: dlq.Cluster, tmp_path: Path) -> None:
    go_on = tmp_path / "go_on"

    async def use() -> None:
        async with dlq.aio.connect() as cluster:
            words: list[str | Path] = ["python3", "-u", "-c", STEPS, go_on, "3"]
            jobs = [await cluster.submit(words, gpus=1) for _ in range(3)]
            await asyncio.gather(*(job.wait(PATIENCE_S, until="running") for job in jobs))
            with pytest.raises(dlq.WaitTimeout, match="goes on"):
                await jobs[0].wait(0.01)
            assert await jobs[0].state == "running"
            assert not await jobs[0].why()
            assert await jobs[0].promise is None
            lines = jobs[0].logs(follow=True)
            assert await anext(lines) == "begun"
            go_on.touch()
            assert [line async for line in lines] == ["seen"]
            ends = await asyncio.gather(
                *(job.result(PATIENCE_S) for job in jobs), return_exceptions=True
            )
            assert [type(end) for end in ends] == [dlq.JobFailed] * 3
            assert {job.id for job in await cluster.jobs(states="failed")} >= {
                job.id for job in jobs
            }
            tasks = await cluster.submit_array(["true"], array="0-1", gpus=1)
            assert await tasks.result(PATIENCE_S) == [0, 0]
            assert await tasks[1].state == "completed"
            assert len(await cluster.array(tasks.id)) == 2
            members = {each: {"command": ["true"]} for each in ("a", "b")}
            group = await cluster.submit_group({"members": members}, gpus=1)
            assert await group.result(PATIENCE_S) == [0, 0]
            assert [job.id for job in group.member("b")] == [group[1].id]
            follower = (await cluster.job(jobs[1].id)).logs()
            assert [line async for line in follower] == ["begun", "seen"]

    asyncio.run(use())

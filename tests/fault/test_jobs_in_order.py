"""Arrays, dependencies, begins, warnings and words to running jobs: real daemons, killed in
between.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlq_client.jobs import Jobs
from dlq_master.control.jobs.limits import STARTUP_S
from support.harness import Daemons
from support.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long(
        "unit/master/control/jobs/test_control_arrays.py",
        "unit/master/control/jobs/test_control_dependencies.py",
        "unit/master/control/jobs/test_control_limits.py",
    ),
]

# It writes down what it is told, saves when it is asked to, and says how its time limit went.
SCRIPT = """\
import os, signal, sys, time
import dlq_train

told = open(sys.argv[1], "a", buffering=1)
run = dlq_train.init()
for name in ("SIGUSR2", "SIGHUP"):
    signal.signal(getattr(signal, name), lambda number, _: told.write(f"signal {number}\\n"))
told.write("started\\n")
step = 0
while not run.should_stop():
    step += 1
    run.beat(step)
    if run.should_save():
        run.save(step, lambda directory: (directory / "state").write_text("x"))
        told.write(f"saved {step}\\n")
    time.sleep(0.02)
run.save(step, lambda directory: (directory / "state").write_text("x"))
run.leave()
"""


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    """A master and one node with eight virtual GPUs."""
    made = Daemons(tmp_path_factory.mktemp("cluster"), ("n1",))
    with made.up():
        (made.root / "told.py").write_text(SCRIPT)
        yield made


def submit(daemons: Daemons, *flags: str, command: tuple[str, ...] = ("/bin/true",)) -> str:
    return daemons.said("submit", "--parsable", *flags, "--", *command).strip()


def job(daemons: Daemons, name: str) -> dict[str, object]:
    (found,) = json.loads(daemons.said("status", "--json", name))["jobs"]
    return dict(found)


def state(daemons: Daemons, name: str) -> object:
    return job(daemons, name)["state"]


def kinds(daemons: Daemons, name: str) -> list[str]:
    events = json.loads(daemons.said("events", "--json", name))["events"]
    return [event["kind"] for event in events]


def a_listener(daemons: Daemons, name: str, *flags: str) -> tuple[str, Path]:
    """A job that writes down what it is told, once it runs."""
    told = daemons.root / f"{name}.told"
    number = submit(
        daemons,
        "-J",
        name,
        *flags,
        command=(sys.executable, str(daemons.root / "told.py"), str(told)),
    )
    wait_until(lambda: told.exists() and "started" in told.read_text(), what=f"{name} runs")
    return number, told


def restart_master(daemons: Daemons) -> None:
    daemons.kill("master")
    daemons.start("master")
    daemons.wait_for("master")


def gate(path: Path) -> str:
    """A line of shell that waits until a file is there."""
    return f"until [ -e {path} ]; do sleep 0.1; done"


def test_an_array_runs_within_its_limit_and_over_a_killed_master(daemons: Daemons) -> None:
    out = daemons.root / "array"
    out.mkdir()
    go = daemons.root / "go"
    told = 'echo "$DLQ_ARRAY_JOB_ID $DLQ_ARRAY_TASK_COUNT $PWD" > $DLQ_ARRAY_TASK_ID'
    line = f"{told}; {gate(go)}"
    array = submit(
        daemons, "-a", "1-13:2%2", "-J", "sweep", "-D", str(out), command=("/bin/sh", "-c", line)
    )
    text = daemons.said("status", array)
    assert f"{array}_[" in text
    assert "%2]" in text
    restart_master(daemons)
    assert f"{array}_[" in daemons.said("status", array)
    go.touch()
    daemons.said("wait", array)
    assert sorted(path.name for path in out.iterdir()) == ["1", "11", "13", "3", "5", "7", "9"]
    assert (out / "7").read_text() == f"{array} 7 {out}\n"
    tasks = json.loads(daemons.said("status", "--json", array))["jobs"]
    assert [task["array_task_id"] for task in tasks] == [1, 3, 5, 7, 9, 11, 13]
    assert {task["state"] for task in tasks} == {"completed"}
    assert "job_completed" in kinds(daemons, f"{array}_7")
    lives = [(task["start_time"], task["end_time"]) for task in tasks]
    for at, _ in lives:
        assert sum(start <= at < end for start, end in lives) <= 2


def test_tasks_are_steered_by_their_names(daemons: Daemons) -> None:
    array = submit(daemons, "-a", "0-5", "-H", "-J", "held")
    assert f"job {array}_[0-2]: cancelled" in daemons.said("cancel", f"{array}_[0-2]")
    assert f"job {array}_4: " in daemons.said("release", f"{array}_4")
    daemons.said("wait", f"{array}_4")
    assert state(daemons, f"{array}_3") == "held"
    daemons.said("cancel", array)
    assert state(daemons, f"{array}_5") == "cancelled"
    refused = daemons.dlq("logs", array)
    assert refused.code == 2
    assert "say which" in refused.err
    assert daemons.dlq("show", f"{array}_9").code == 3


def test_a_chain_comes_in_order_over_a_killed_master_and_a_broken_one_is_held(
    daemons: Daemons,
) -> None:
    go = daemons.root / "first-may-end"
    first = submit(daemons, command=("/bin/sh", "-c", gate(go)))
    then = submit(daemons, "-d", f"afterok:{first}")
    fails = submit(daemons, "-d", f"afterany:{first}", command=("/bin/false",))
    never = submit(daemons, "-d", f"afterok:{fails}")
    gone = submit(daemons, "-d", f"afterok:{fails}", "--kill-on-invalid-dep", "yes")
    assert "dependency: it waits for other jobs: afterok:" in daemons.said("why", then)
    restart_master(daemons)
    assert job(daemons, then)["wait_code"] == "dependency"
    go.touch()
    daemons.said("wait", first, then)
    assert job(daemons, first)["end_time"] <= job(daemons, then)["start_time"]  # type: ignore[operator]
    wait_until(lambda: state(daemons, never) == "held", what="the broken chain is held")
    assert state(daemons, gone) == "cancelled"
    assert "can never come true" in daemons.said("why", never)
    told = daemons.said("update", never, "dependency=none")
    assert f"job {never}: dependency: afterok:{fails} -> none" in told
    daemons.said("wait", never)


def test_a_begin_is_kept_by_a_master_that_is_killed_before_it(daemons: Daemons) -> None:
    number = submit(daemons, "-b", "now+10s")
    assert job(daemons, number)["wait_code"] == "begin_time"
    restart_master(daemons)
    daemons.said("wait", number)
    found = job(daemons, number)
    assert found["start_time"] > found["submit_time"]  # type: ignore[operator]
    later = submit(daemons, "-b", "now+1h")
    assert "begin: " in daemons.said("update", later, "begin=none")
    daemons.said("wait", later)


def test_words_reach_a_job_that_goes_on_also_after_both_daemons_were_killed(
    daemons: Daemons,
) -> None:
    number, told = a_listener(daemons, "listener")
    daemons.said("signal", number, "SIGHUP")
    wait_until(lambda: "signal 1\n" in told.read_text(), what="the job has the signal")
    daemons.kill("n1")
    daemons.said("signal", number, "USR2")
    restart_master(daemons)
    daemons.start("n1")
    daemons.wait_for("n1")
    wait_until(lambda: "signal 12\n" in told.read_text(), what="the agent that is back sends it")
    path = daemons.said("checkpoint", "--timeout", "1m", number).strip()
    assert (Path(path) / "COMMITTED").exists()
    assert "saved " in told.read_text()
    again = daemons.said("checkpoint", "--timeout", "1m", number).strip()
    assert again != path
    assert state(daemons, number) == "running"
    found = kinds(daemons, number)
    assert found.count("attempt_save_asked") == 2
    assert "rank_signalled" in found
    assert "is saving" in daemons.said("requeue", number)
    wait_until(lambda: told.read_text().count("started") == 2, what="it starts again")
    assert job(daemons, number)["attempt_count"] == 2
    daemons.said("cancel", "--kill", "--wait", number)


def test_a_job_is_warned_before_its_limit_and_ended_at_it(daemons: Daemons) -> None:
    number, told = a_listener(daemons, "limited", "-t", "70s", "--signal", "USR2@60")
    wait_until(lambda: "signal 12\n" in told.read_text(), what="the job is warned", timeout_s=60.0)
    with daemons.connect() as line:
        story = {one.kind: one.event_time.ToNanoseconds() for one in Jobs(line).events(number)}
    ran_s = (story["attempt_warned"] - story["attempt_running"]) / 1e9
    assert ran_s >= STARTUP_S, "a launcher that has just begun would die of it"
    assert state(daemons, number) == "running"
    refused = daemons.dlq("update", number, "queue=default", "begin=now+1h")
    assert refused.code == 1
    assert "cannot be changed any more" in refused.err
    daemons.said("update", number, "time_limit=20s")
    wait_until(lambda: state(daemons, number) == "timed_out", what="its end", timeout_s=90.0)
    assert "attempt_warned" in kinds(daemons, number)
    assert told.read_text().count("signal 12\n") >= 1

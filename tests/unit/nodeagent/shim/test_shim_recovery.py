"""What survives the death of the agent, of the shim, and of both at bad moments."""

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from dlq_common.errors import ConfigError
from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.port import AttemptExists, ExitWhy, Handle
from dlq_nodeagent.runtimes.process import layout, planfile, shim_process
from dlq_nodeagent.shim.contact import ContactFile
from support.process_box import ProcessBox, is_alive, process_box
from support.waiting import wait_until

TESTS = Path(__file__).parents[3]


@pytest.fixture(params=["host", "none"])
def box(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ProcessBox]:
    with process_box(tmp_path / "state", request.param) as made:
        yield made


@contextmanager
def other_agent(
    state_dir: Path, script: str, hold_s: float = 3600
) -> Iterator[subprocess.Popen[str]]:
    """Another agent process over this state directory, with one job running `script`."""
    command = [sys.executable, "-m", "support.dying_agent", str(state_dir), str(hold_s), script]
    with subprocess.Popen(command, cwd=TESTS, stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None
        assert agent.stdout.readline() == "1.1.0\n"
        yield agent


def kill_shim(box: ProcessBox, handle: Handle) -> None:
    started = wait_until(lambda: box.runtime.started(handle), what="the start record")
    assert started is not None
    os.kill(started.shim_pid, signal.SIGKILL)


def test_an_exit_code_from_while_the_agent_was_dead_is_recovered(tmp_path: Path) -> None:
    state, go = tmp_path / "state", tmp_path / "go"
    with other_agent(state, f"until [ -e {go} ]; do sleep 0.01; done; exit 42") as agent:
        agent.kill()
    go.touch()
    wait_until((state / "attempts/1.1.0/exit.json").exists, what="the exit record")
    with process_box(state, "none") as box:
        (handle,) = box.runtime.recover()
        record = box.wait_exit(handle)
        assert (record.why, record.code, record.epoch) == (ExitWhy.EXITED, 42, 5)


def test_an_exit_record_that_the_disk_has_changed_is_put_aside_and_the_end_is_unknown(
    tmp_path: Path,
) -> None:
    """One bit makes another code of sound JSON."""
    state = tmp_path / "state"
    with other_agent(state, "exit 3") as agent:
        exit_json = state / "attempts/1.1.0/exit.json"
        wait_until(exit_json.exists, what="the exit record")
        agent.kill()
    data = exit_json.read_bytes()
    assert b'"code":3,' in data
    assert b'"crc":"' in data
    exit_json.write_bytes(data.replace(b'"code":3,', b'"code":2,'))
    with process_box(state, "none") as box:
        (handle,) = box.runtime.recover()
        record = box.wait_exit(handle)
        assert (record.why, record.code) == (ExitWhy.SHIM_LOST, None)
        assert exit_json.with_suffix(".json.damaged").read_bytes() != data


def test_a_job_outlives_its_agent_and_obeys_the_next_one(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with other_agent(state, "echo before; exec sleep 1000") as agent:
        wait_until((state / "attempts/1.1.0/started.json").exists, what="the start record")
        agent.kill()
    with process_box(state, "none") as box:
        (handle,) = box.runtime.recover()
        assert box.runtime.poll(handle) is None
        assert box.wait_log(handle, b"before\n") == b"before\n"
        box.runtime.signal(handle, signal.SIGTERM, epoch=6)
        assert box.wait_exit(handle).signal == signal.SIGTERM


def test_a_hold_runs_out_with_nobody_alive_but_the_shim(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with other_agent(state, "trap '' TERM; while :; do sleep 1; done", hold_s=1.0) as agent:
        agent.kill()
    exit_json = state / "attempts/1.1.0/exit.json"
    wait_until(exit_json.exists, what="the end of the hold")
    said = json.loads(exit_json.read_text())
    assert (said["why"], said["noticed"], said["signal"]) == ("hold_expired", "hold_expired", 9)
    notice = json.loads((state / "attempts/1.1.0/notice.json").read_text())
    assert notice["kind"] == "hold_expired"
    assert notice["notice_s"] < notice["deadline_s"]
    with process_box(state, "none"):
        pass


def test_a_hold_is_counted_from_the_contact_and_not_from_the_start(box: ProcessBox) -> None:
    old = ContactFile(box.state_dir / "old-contact")
    old.renew(box.clock.boottime_s() - 60)
    old.close()
    box.runtime._contact = box.state_dir / "old-contact"
    handle = box.sh("trap '' TERM; while :; do sleep 1; done", hold_s=50)
    assert box.wait_exit(handle).why is ExitWhy.HOLD_EXPIRED


def test_nothing_starts_without_a_contact_of_this_boot(box: ProcessBox) -> None:
    path = box.state_dir / "contact"
    for content in (b"", b"\0" * 64, path.read_bytes().replace(b"DLQCONT1", b"DLQCONT0")):
        other = box.state_dir / "other-contact"
        other.write_bytes(content)
        box.runtime._contact = other
        record = box.wait_exit(box.sh("true"))
        assert record.start_error is not None
        assert record.start_error.stage == "contact"


def test_a_shim_that_is_killed_takes_its_job_along(box: ProcessBox) -> None:
    handle = box.sh("trap '' TERM; (trap '' TERM; echo $$; exec sleep 1000) & echo $!; wait")
    wait_until(lambda: box.log(handle).count(b"\n") == 2, what="two pids in the log")
    pids = {int(line) for line in box.log(handle).split()}
    kill_shim(box, handle)
    record = box.wait_exit(handle)
    assert (record.why, record.code, record.signal) == (ExitWhy.SHIM_LOST, None, None)
    wait_until(lambda: not any(map(is_alive, pids)), what="the end of the job's processes")


def test_the_record_of_a_lost_shim_survives_the_agent(box: ProcessBox) -> None:
    handle = box.sh("exec sleep 1000")
    kill_shim(box, handle)
    first = box.wait_exit(handle)
    box.restart_agent()
    assert box.runtime.poll(handle) == first


def test_a_pid_that_now_belongs_to_somebody_else_is_not_our_shim(box: ProcessBox) -> None:
    handle = box.sh("exec sleep 1000")
    kill_shim(box, handle)
    box.runtime.close()
    path = box.path(handle) / "started.json"
    said = json.loads(path.read_text())
    path.write_text(json.dumps(said | {"shim_pid": os.getpid()}))  # alive, of another start time
    box.runtime = box._new_runtime()
    assert box.runtime.recover() == [handle]
    assert box.wait_exit(handle).why is ExitWhy.SHIM_LOST


def test_a_start_record_of_another_boot_adopts_nobody(box: ProcessBox) -> None:
    handle = box.sh("exec sleep 1000")
    kill_shim(box, handle)
    box.runtime.close()
    path = box.path(handle) / "started.json"
    said = json.loads(path.read_text())
    ticks = shim_process.read_start_ticks(os.getpid())
    foreign = {"shim_pid": os.getpid(), "shim_start_ticks": ticks, "boot_id": "another"}
    path.write_text(json.dumps(said | foreign))
    box.runtime = box._new_runtime()
    box.runtime.recover()
    record = box.wait_exit(handle)
    assert (record.why, record.boot_id) == (ExitWhy.SHIM_LOST, "another")


def test_an_agent_that_died_before_its_plan_was_whole_started_nothing(box: ProcessBox) -> None:
    key = RankKey("9", 1, 0)
    attempts = layout.open_attempts(box.state_dir)
    os.close(layout.make_attempt(attempts, key, uid=os.geteuid(), gid=os.getegid()))
    os.close(attempts)
    assert box.runtime.recover() == []
    assert not (box.state_dir / "attempts" / str(key)).exists()


FORMER_NAMES = ("plan", "ctl", "started.json", "exit.json")  # the order of dlq 0.2.0


@pytest.mark.parametrize("names", [layout._OUR_NAMES, FORMER_NAMES], ids=["now", "0.2.0"])
def test_an_agent_that_died_removing_an_attempt_does_not_stop_the_next_one(
    box: ProcessBox, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    for gone in range(len(names) + 1):
        handle = box.sh("exit 3")
        box.wait_exit(handle)
        with monkeypatch.context() as patch, suppress(OSError):  # it finds the directory not empty
            patch.setattr(layout, "_OUR_NAMES", names[:gone])
            box.runtime.forget(handle)
        box.restart_agent()
        for left in box.runtime.recover():
            box.wait_exit(left)
            box.runtime.forget(left)
        assert not box.path(handle).exists()


@pytest.mark.parametrize("name", ["plan", "started.json", "exit.json"])
def test_a_record_that_cannot_be_read_is_told_with_its_place_and_a_remedy(
    box: ProcessBox, name: str
) -> None:
    handle = box.sh("exit 3")
    box.wait_exit(handle)
    box.runtime.close()
    record, aside = box.path(handle) / name, box.path(handle) / "aside"
    record.rename(aside)
    record.mkdir()  # to read it fails, as on a bad sector
    box.runtime = box._new_runtime()
    with pytest.raises(ConfigError, match=f"{box.path(handle)}: .* cannot be read") as refused:
        box.runtime.recover()
    assert "move the directory away" in refused.value.hint
    record.rmdir()
    aside.rename(record)
    box.runtime.recover()
    assert box.wait_exit(handle).code == 3


def test_an_agent_that_died_before_the_launch_leaves_a_start_error(box: ProcessBox) -> None:
    handle = write_plan_only(box, "touch ran")
    assert box.runtime.recover() == [handle]
    record = box.wait_exit(handle)
    assert record.why is ExitWhy.START_ERROR
    assert record.start_error is not None
    assert record.start_error.text == "the agent ended before the launch"


def test_a_shim_that_starts_after_it_was_given_up_runs_nothing(
    box: ProcessBox, tmp_path: Path
) -> None:
    handle = write_plan_only(box, f"touch {tmp_path}/ran")
    box.runtime.recover()
    box.wait_exit(handle)
    late = subprocess.run([str(box.shim), str(box.path(handle))], check=False, timeout=60)
    assert late.returncode == 3
    assert not (tmp_path / "ran").exists()


def test_an_attempt_is_not_over_while_its_plan_is_locked(box: ProcessBox) -> None:
    handle = write_plan_only(box, "true")
    with (box.path(handle) / "plan").open("rb") as plan:
        fcntl.flock(plan, fcntl.LOCK_EX)
        assert box.runtime.recover() == [handle]
        assert box.runtime.poll(handle) is None
        second = subprocess.run([str(box.shim), str(box.path(handle))], check=False, timeout=60)
        assert second.returncode == 3
    assert box.wait_exit(handle).why is ExitWhy.START_ERROR


def test_a_second_start_of_a_recovered_attempt_is_refused(box: ProcessBox) -> None:
    plan = box.plan("/bin/sleep", "1000")
    box.runtime.start(plan)
    box.runtime.close()
    box.runtime = box._new_runtime()
    with pytest.raises(AttemptExists):
        box.runtime.start(plan)


def test_a_garbled_plan_is_an_ended_attempt_and_not_a_crash(box: ProcessBox) -> None:
    handle = write_plan_only(box, "true")
    (box.path(handle) / "plan").write_bytes(b"\0\0\0")
    (recovered,) = box.runtime.recover()
    assert box.wait_exit(recovered).why is ExitWhy.START_ERROR


@pytest.mark.parametrize("name", ["x", "1.2", "01.1.0", "1.1.0.tmp", "1.1.-1", ".1.1.0"])
def test_foreign_names_among_the_attempts_are_left_alone(box: ProcessBox, name: str) -> None:
    (box.state_dir / "attempts" / name).mkdir()
    assert box.runtime.recover() == []
    assert (box.state_dir / "attempts" / name).is_dir()


def write_plan_only(box: ProcessBox, script: str) -> Handle:
    """An attempt as an agent leaves it that dies between its plan and its launch."""
    plan = box.plan("/bin/sh", "-c", script, job_id="9")
    attempts = layout.open_attempts(box.state_dir)
    at = layout.make_attempt(attempts, plan.key, uid=plan.uid, gid=plan.gid)
    data = planfile.encode(plan, (), box.state_dir / "contact")
    layout.write(at, layout.PLAN, data, durable=False, readable_by_gid=None)
    os.close(at)
    os.close(attempts)
    return Handle(plan.key, plan.epoch)

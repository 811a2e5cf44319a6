"""Who a job runs as: the shim drops for good, and a root-owned file has the last word."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dlq_nodeagent.model.launch import LaunchPlan
from dlq_nodeagent.model.mistakes import LaunchRefused
from dlq_nodeagent.model.port import ExitRecord, ExitWhy, Handle, StopNotice
from dlq_nodeagent.runtimes.process import layout, planfile, shim_process
from support.process_box import ProcessBox, process_box
from support.waiting import wait_until

NOBODY = 65534
USER: dict[str, Any] = {"run_as": "submitter", "uid": NOBODY, "gid": NOBODY}
NOTICE = StopNotice(kind="preempt", reason="a test", deadline_s=2e9, notice_s=1.9e9)

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


@pytest.fixture
def box() -> Iterator[ProcessBox]:
    """A state directory that every user can pass (pytest's own are closed)."""
    with tempfile.TemporaryDirectory(prefix="dlq-identity-") as root:
        Path(root).chmod(0o711)
        with process_box(Path(root) / "state") as made:
            yield made


def write_map(box: ProcessBox, text: str = f"{NOBODY}:{NOBODY}:100,200\n") -> Path:
    path = box.state_dir / "users.map"
    path.write_text(text)
    path.chmod(0o644)
    return path


def start_unchecked(box: ProcessBox, plan: LaunchPlan, *changes: tuple[bytes, bytes]) -> Handle:
    """Launch a plan that the agent's own checks would have refused, after changing its file."""
    attempts = layout.open_attempts(box.state_dir)
    at = layout.make_attempt(attempts, plan.key, uid=plan.uid, gid=plan.gid)
    data = planfile.encode(plan, (), box.state_dir / "contact")
    for old, new in changes:
        assert old in data
        data = data.replace(old, new)
    layout.write(at, layout.PLAN, data, durable=False, readable_by_gid=None)
    os.close(at)
    os.close(attempts)
    os.waitpid(shim_process.spawn(box.shim, box.state_dir / "attempts" / str(plan.key)), 0)
    (handle,) = box.runtime.recover()
    return handle


def refusal(record: ExitRecord) -> str:
    assert record.why is ExitWhy.START_ERROR
    assert record.start_error is not None
    assert record.start_error.stage == "identity"
    return record.start_error.text


@needs_root
def test_a_submitters_job_is_that_user_in_every_respect(box: ProcessBox) -> None:
    write_map(box)
    script = "grep -E '^(Uid|Gid|Groups|Cap|NoNewPrivs)' /proc/self/status"
    handle = box.sh(script, groups=(100, 200), **USER)
    box.wait_exit(handle)
    said = {
        name: words.split()
        for name, words in (line.split(":") for line in box.log(handle).decode().splitlines())
    }
    assert said["Uid"] == said["Gid"] == [str(NOBODY)] * 4
    assert said["Groups"] == ["100", "200"]
    assert said["NoNewPrivs"] == ["1"]
    for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert said[kind] == ["0" * 16]


@needs_root
def test_a_submitters_job_cannot_touch_what_belongs_to_the_agent(box: ProcessBox) -> None:
    write_map(box)
    plan = box.plan("/bin/true", **USER)
    at = box.state_dir / "attempts" / str(plan.key)
    script = f"""
        for name in plan ctl started.json log.head log.ring; do cat {at}/$name && echo BAD; done
        ls {at} && echo BAD
        rm -f {at}/notice.json {at}/plan && echo BAD
        echo x > {at}/new && echo BAD
        mv {at}/job {at}/job2 && echo BAD
        echo x > {box.state_dir}/contact && echo BAD
        cat {at}/notice.json && touch {at}/job/beat && echo good
    """
    wait = f"until [ -e {at}/notice.json ]; do sleep 0.01; done; "
    handle = box.sh(wait + script, job_id=plan.job_id, **USER)
    wait_until(lambda: box.runtime.started(handle), what="the start record")
    box.runtime.notice(handle, NOTICE)
    assert box.wait_exit(handle).code == 0
    assert b"BAD" not in box.log(handle)
    assert b'"kind": "preempt"' in box.log(handle)
    assert box.log(handle).endswith(b"good\n")


@needs_root
def test_the_working_directory_is_entered_with_the_users_rights(box: ProcessBox) -> None:
    write_map(box)
    closed = box.state_dir / "closed"
    closed.mkdir(mode=0o700)
    record = box.wait_exit(box.sh("true", cwd=str(closed), **USER))
    assert record.start_error is not None
    assert record.start_error.stage == "chdir"
    assert record.start_error.text == f"Permission denied: '{closed}'"


@needs_root
@pytest.mark.parametrize(
    "text",
    [
        "",
        f"{NOBODY}:100:\n",  # another gid
        f"{NOBODY}:{NOBODY}:\n",  # not that group
        f"{NOBODY}:{NOBODY}:1001,10\n",
        f"#{NOBODY}:{NOBODY}:100\n",
        f"12{NOBODY}:{NOBODY}:100\n",
        "65534\n",
        "nobody:nogroup:users\n",
    ],
)
def test_ids_that_the_map_does_not_allow_are_refused(box: ProcessBox, text: str) -> None:
    write_map(box, text)
    record = box.wait_exit(box.sh("true", groups=(100,), **USER))
    assert refusal(record) == "uid, gid and groups are not those of the users map"


@needs_root
def test_a_host_without_a_map_runs_no_submitters_job(box: ProcessBox) -> None:
    if Path("/etc/dlq/users.map").exists():
        pytest.skip("this host has a map of its own")
    assert "no users map" in refusal(box.wait_exit(box.sh("true", **USER)))


@needs_root
@pytest.mark.parametrize("damage", ["group-writable", "world-writable", "not root's", "a link"])
def test_a_map_that_others_could_have_written_is_refused(box: ProcessBox, damage: str) -> None:
    path = write_map(box)
    match damage:
        case "group-writable":
            path.chmod(0o664)
        case "world-writable":
            path.chmod(0o646)
        case "not root's":
            os.chown(path, NOBODY, 0)
        case "a link":
            path.rename(box.state_dir / "elsewhere")
            path.symlink_to("elsewhere")
    assert "users map" in refusal(box.wait_exit(box.sh("true", **USER)))


@pytest.mark.parametrize(
    "fields",
    [
        {"uid": 0, "gid": 0},
        {"uid": 0, "gid": 0, "run_as": "submitter", "allow_root": True},
        {"uid": -1, "gid": 100},
        {"uid": 2**32 - 1, "gid": 100},
        {"uid": 100, "gid": 2**32},
        {"uid": 100, "gid": 100, "groups": (2**32 - 1,)},
    ],
)
def test_the_agent_refuses_root_and_ids_that_are_none(fields: dict[str, Any]) -> None:
    with pytest.raises(LaunchRefused):
        LaunchPlan(job_id="1", attempt=1, epoch=1, node_rank=0, argv=("true",), **fields)


@needs_root
@pytest.mark.parametrize(
    "change",
    [
        (b"uid=65534\0", b"uid=0\0"),
        (b"gid=65534\0", b"gid=0\0"),
        (b"group=100\0", b"group=0\0"),
    ],
)
def test_the_shim_itself_refuses_a_submitter_who_is_root(
    box: ProcessBox, change: tuple[bytes, bytes]
) -> None:
    write_map(box, "0:0:0,100\n65534:0:100\n65534:65534:0,100\n0:65534:100\n")
    handle = start_unchecked(box, box.plan("/bin/true", groups=(100,), **USER), change)
    assert refusal(box.wait_exit(handle)).startswith("a submitter's job never runs with")


@needs_root
def test_the_shim_itself_refuses_uid_0_without_the_development_flag(box: ProcessBox) -> None:
    change = (b"allow_root=yes", b"allow_root=no")
    handle = start_unchecked(box, box.plan("/bin/true"), change)
    assert refusal(box.wait_exit(handle)) == "uid 0 without the development flag"


@pytest.mark.parametrize("number", [b"-1", b"4294967295", b"1e3", b"", b"0x0", b"99999999999"])
def test_the_shim_reads_ids_as_plain_decimal_numbers(box: ProcessBox, number: bytes) -> None:
    plan = box.plan("/bin/true")
    handle = start_unchecked(box, plan, (b"\0uid=%d\0" % plan.uid, b"\0uid=" + number + b"\0"))
    record = box.wait_exit(handle)
    assert record.start_error is not None
    assert (record.start_error.stage, record.start_error.errno) == ("plan", 0)


def test_run_as_self_is_the_agents_own_user_and_no_other(box: ProcessBox) -> None:
    plan = box.plan("/bin/true")
    change = (b"\0uid=%d\0" % plan.uid, b"\0uid=54321\0")
    assert "not the agent's own" in refusal(box.wait_exit(start_unchecked(box, plan, change)))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_plan_that_others_may_touch_is_not_run(box: ProcessBox, mode: int) -> None:
    plan = box.plan("/bin/sh", "-c", f"touch {box.state_dir}/ran")
    attempts = layout.open_attempts(box.state_dir)
    at = layout.make_attempt(attempts, plan.key, uid=plan.uid, gid=plan.gid)
    data = planfile.encode(plan, (), box.state_dir / "contact")
    layout.write(at, layout.PLAN, data, durable=False, readable_by_gid=None)
    os.chmod("plan", mode, dir_fd=at)
    os.close(at)
    os.close(attempts)
    home = box.state_dir / "attempts" / str(plan.key)
    _, status = os.waitpid(shim_process.spawn(box.shim, home), 0)
    assert os.waitstatus_to_exitcode(status) == 3
    with suppress(FileNotFoundError):
        (box.state_dir / "ran").unlink()
        raise AssertionError("the plan was run")

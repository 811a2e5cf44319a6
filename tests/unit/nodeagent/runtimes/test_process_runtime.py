"""Real processes below real shims: what a job gets, what it leaves, what dies with it."""

import json
import os
import re
import resource
import select
import shutil
import signal
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dlq_common.text.soft_limits import UNLIMITED
from dlq_nodeagent.model.mistakes import LaunchRefused
from dlq_nodeagent.model.port import ExitWhy, Handle, RuntimeFault, StopNotice
from dlq_nodeagent.runtimes.process import planfile
from dlq_nodeagent.runtimes.process.leftovers import finder
from dlq_nodeagent.runtimes.process.shim_process import Ends
from support.process_box import ProcessBox, is_alive, process_box
from support.waiting import wait_until

NOTICE = StopNotice(kind="preempt", reason="a test", deadline_s=2e9, notice_s=1.9e9)


@pytest.fixture(params=["host", "none"])
def box(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ProcessBox]:
    """Once with the host's control groups and once without any."""
    with process_box(tmp_path / "state", request.param) as made:
        if request.param == "host" and made.tree.mode == "none":
            pytest.skip(f"no control groups here: {made.tree.why}")
        yield made


def pids_in_log(box: ProcessBox, handle: Handle, count: int) -> list[int]:
    """The pids a job has printed, one per line, once there are as many as that."""
    wait_until(lambda: box.log(handle).count(b"\n") >= count, what=f"{count} pids in the log")
    return [int(line) for line in box.log(handle).split()]


def test_the_environment_is_the_plans_and_nothing_else(box: ProcessBox) -> None:
    env = {"A": "1", "NEWLINE": "a\nb", "LD_NOTHING": "kept", "EMPTY": ""}
    handle = box.run("/usr/bin/env", "-0", env=env)
    assert box.wait_exit(handle).code == 0
    pairs = dict(pair.split(b"=", 1) for pair in box.log(handle).split(b"\0") if pair)
    assert pairs == {name.encode(): value.encode() for name, value in env.items()}


def test_arguments_arrive_byte_for_byte(box: ProcessBox) -> None:
    words = ["a b", "$(touch /tmp/never)", "`id`", "new\nline", "", "'\"\\", "*", "\udcff"]
    handle = box.run("/usr/bin/printf", r"%s\0", *words)
    box.wait_exit(handle)
    expected = [word.encode("utf-8", "surrogateescape") for word in words]
    assert box.log(handle).split(b"\0")[:-1] == expected


def test_a_command_without_a_slash_is_found_by_the_plans_path(
    box: ProcessBox, tmp_path: Path
) -> None:
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\necho mine\n")
    tool.chmod(0o755)
    handle = box.run("tool", env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert box.wait_exit(handle).code == 0
    assert box.log(handle) == b"mine\n"


def test_a_job_starts_in_its_directory_with_clean_signals_and_no_open_files(
    box: ProcessBox,
) -> None:
    script = "pwd; grep -E '^Sig(Ign|Blk)' /proc/self/status; ls /proc/self/fd | wc -l"
    handle = box.sh(script, cwd="/usr")
    box.wait_exit(handle)
    cwd, blocked, ignored, open_files = box.log(handle).decode().split("\n")[:4]
    assert cwd == "/usr"
    assert (blocked.split()[1], ignored.split()[1]) == ("0" * 16, "0" * 16)
    assert int(open_files) == 4  # 0, 1, 2 and the directory that ls reads


@pytest.mark.parametrize("mask", [0, 0o027, 0o777])
def test_a_job_has_the_umask_of_its_plan(box: ProcessBox, mask: int) -> None:
    handle = box.sh("umask", umask=mask)
    box.wait_exit(handle)
    assert int(box.log(handle), 8) == mask


def limits_of_a_job(box: ProcessBox, **asked: int) -> list[str]:
    """Its soft and hard limits, in turn: open files, stack, core dumps, CPU time."""
    script = "for each in n s c t; do ulimit -S -$each; ulimit -H -$each; done"
    handle = box.sh(script, soft_limits=asked)
    box.wait_exit(handle)
    return box.log(handle).decode().split()


def test_a_job_has_the_soft_limits_of_its_plan_and_never_more_than_the_hard_ones(
    box: ProcessBox,
) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    core = resource.getrlimit(resource.RLIMIT_CORE)[1]
    blocks = "unlimited" if core < 0 else str(core // 512)
    plain = limits_of_a_job(box)
    assert (plain[:2], plain[4:6]) == ([str(most)] * 2, ["0", "0"])
    asked = limits_of_a_job(box, NOFILE=99, STACK=4 << 20, CORE=0, CPU=77)
    assert asked == ["99", str(most), "4096", plain[3], "0", blocks, "77", plain[7]]
    above = limits_of_a_job(box, NOFILE=most + 1, STACK=UNLIMITED, CORE=UNLIMITED, CPU=UNLIMITED)
    assert above == [*[str(most)] * 2, *[plain[3]] * 2, *[blocks] * 2, *[plain[7]] * 2]


@pytest.mark.parametrize(
    "word",
    ["NICE:1", "STACK", "STACK:", "STACK:-1", "STACK:1x", f"STACK:{2**64}", ":1"],
)
def test_a_plan_with_a_limit_that_is_none_starts_nothing(box: ProcessBox, word: str) -> None:
    plan = box.plan("/bin/true", soft_limits={"STACK": 1})
    encode = planfile.encode

    def broken(*parts: Any) -> bytes:
        return encode(*parts).replace(b"soft_limit=STACK:1", f"soft_limit={word}".encode())

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(planfile, "encode", broken)
        record = box.wait_exit(box.runtime.start(plan))
    assert record.start_error is not None
    assert (record.start_error.stage, record.start_error.text) == ("plan", "a bad soft limit")


def test_privileges_cannot_be_gained(box: ProcessBox) -> None:
    handle = box.sh("grep -E '^(NoNewPrivs|Cap)' /proc/self/status")
    box.wait_exit(handle)
    said = dict(line.split(":\t") for line in box.log(handle).decode().splitlines())
    assert said.pop("NoNewPrivs") == "1"
    bounding = said.pop("CapBnd") if os.geteuid() != 0 else "0"  # only root can empty it
    assert int(bounding, 16) >= 0
    assert {int(bits, 16) for bits in said.values()} == {0}


@pytest.mark.parametrize(
    ("argv", "cwd", "stage", "text"),
    [
        (("/no/such/file",), "/", "exec", "No such file or directory: '/no/such/file'"),
        (("no-such-command",), "/", "exec", "No such file or directory: 'no-such-command'"),
        (("/etc/passwd",), "/", "exec", "Permission denied: '/etc/passwd'"),
        (("/bin/true",), "/no/such/dir", "chdir", "No such file or directory: '/no/such/dir'"),
        (("/bin/true",), "/etc/passwd", "chdir", "Not a directory: '/etc/passwd'"),
        (("é" * 99 + "x", "y"), "/", "exec", f"No such file or directory: '{'é' * 99}x'"),
        (("\udcff",), "/", "exec", "No such file or directory: '\ufffd'"),
        (('a"b\\',), "/", "exec", "No such file or directory: 'a\"b\\'"),
    ],
)
def test_a_failed_start_names_the_step_and_the_systems_words(
    box: ProcessBox, argv: tuple[str, ...], cwd: str, stage: str, text: str
) -> None:
    record = box.wait_exit(box.run(*argv, cwd=cwd))
    assert record.why is ExitWhy.START_ERROR
    assert record.start_error is not None
    assert (record.start_error.stage, record.start_error.text) == (stage, text)


def test_a_failed_start_is_the_one_line_of_the_log(box: ProcessBox) -> None:
    handle = box.run("no-such-command")
    box.wait_exit(handle)
    line = b"dlq: cannot run the job: exec: No such file or directory: 'no-such-command'\n"
    assert box.log(handle) == line


def test_a_script_whose_interpreter_is_missing_is_told_from_a_missing_script(
    box: ProcessBox, tmp_path: Path
) -> None:
    script = tmp_path / "train"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    record = box.wait_exit(box.run(str(script)))
    assert record.start_error is not None
    assert record.start_error.stage == "interpreter"


def test_sixteen_workers_that_ignore_sigterm_die_with_the_job(box: ProcessBox) -> None:
    worker = "trap '' TERM INT HUP; echo $$; while :; do sleep 100; done"
    handle = box.sh(f"for i in $(seq 16); do /bin/sh -c '{worker}' & done; trap '' TERM; wait")
    workers = pids_in_log(box, handle, 16)
    box.runtime.kill(handle, epoch=5)
    assert box.wait_exit(handle).remaining_pids == 0
    assert [pid for pid in workers if is_alive(pid)] == []


def test_what_the_main_process_leaves_behind_dies_before_the_record(box: ProcessBox) -> None:
    handle = box.sh("sleep 1000 & echo $!; exec /bin/true")
    box.wait_exit(handle)
    (left,) = pids_in_log(box, handle, 1)
    assert not is_alive(left)


def test_a_daemonised_grandchild_dies_with_the_job(box: ProcessBox, tmp_path: Path) -> None:
    daemon = tmp_path / "daemon.sh"
    daemon.write_text(f"trap '' HUP TERM\necho $$ > {tmp_path}/pid\nexec sleep 1000\n")
    quiet = "</dev/null >/dev/null 2>&1"
    handle = box.sh(
        f"(setsid /bin/sh -c 'setsid /bin/sh {daemon} {quiet} & exit 0' {quiet} &);"
        f" until [ -s {tmp_path}/pid ]; do sleep 0.01; done"
    )
    assert box.wait_exit(handle).why is ExitWhy.EXITED
    assert not is_alive(int((tmp_path / "pid").read_text()))


def test_a_signal_goes_to_the_main_process_and_not_to_its_children(box: ProcessBox) -> None:
    child = "trap 'echo child' USR1; while :; do sleep 0.01; done"
    handle = box.sh(
        f"trap 'echo main; exit 7' USR1; /bin/sh -c \"{child}\" & echo ready;"
        " while :; do sleep 0.01; done"
    )
    box.wait_log(handle, b"ready")
    box.runtime.signal(handle, signal.SIGUSR1, epoch=5)
    assert box.wait_exit(handle).code == 7
    assert box.log(handle) == b"ready\nmain\n"


def test_main_processes_pid_and_start_time_are_on_record(box: ProcessBox) -> None:
    handle = box.sh("echo $$; exec sleep 1000")
    (pid,) = pids_in_log(box, handle, 1)
    started = wait_until(lambda: box.runtime.started(handle), what="the start record")
    assert started is not None
    assert started.main_pid == pid
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    assert started.main_start_ticks == int(ticks)


def test_every_end_shows_on_one_descriptor_until_somebody_looks(box: ProcessBox) -> None:
    first, second = box.sh("exit 3"), box.sh("exec sleep 1000")
    (record,) = wait_until(
        lambda: box.runtime.exited([first, second]) if ends(box) else [], what="the first end"
    )
    assert (record.key, record.code) == (first.key, 3)
    wait_until(lambda: box.runtime.started(second), what="the start record")
    box.runtime.exited([second])
    assert not ends(box)
    box.restart_agent()
    box.runtime.kill(second, epoch=second.epoch)
    wait_until(lambda: ends(box), what="the end of one that was adopted")
    (record,) = box.runtime.exited([second])
    assert record.key == second.key
    assert not ends(box)


def test_a_shim_that_is_watched_lives_until_its_end_was_taken() -> None:
    watcher, child = Ends(), os.posix_spawn("/bin/sleep", ["sleep", "1000"], {})
    pidfd = os.pidfd_open(child)
    assert not watcher.lives(pidfd)  # nobody watches it
    watcher.watch(pidfd)
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: select.select([watcher.descriptor], [], [], 0)[0], what="the end")
    assert watcher.lives(pidfd)
    watcher.taken()
    assert not watcher.lives(pidfd)
    watcher.forget(pidfd)
    os.close(pidfd)
    os.waitpid(child, 0)
    watcher.close()


def test_every_start_shows_there_too(box: ProcessBox) -> None:
    handle = box.sh("exec sleep 1000")
    wait_until(lambda: ends(box), what="the start")
    assert box.runtime.started(handle) is not None
    assert box.runtime.exited([handle]) == []
    assert not ends(box)


def ends(box: ProcessBox) -> bool:
    """Whether the runtime says that somebody has started or ended."""
    descriptor = box.runtime.ends()
    assert descriptor is not None
    return bool(select.select([descriptor], [], [], 0)[0])


def test_cpu_time_of_all_processes_is_on_record(box: ProcessBox) -> None:
    busy = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done"
    record = box.wait_exit(box.sh(f"({busy}) & ({busy}) & wait"))
    assert record.cpu_s > 0.01
    assert record.peak_memory_bytes is not None


def test_the_notice_is_whole_json_that_only_its_reader_may_read(box: ProcessBox) -> None:
    handle = box.sh("exec sleep 1000")
    box.runtime.notice(handle, NOTICE)
    path = Path(box.runtime.job_files(handle.key).preempt_file)
    said = json.loads(path.read_text())
    assert said == {
        "v": 1,
        "kind": "preempt",
        "reason": "a test",
        "deadline_s": 2e9,
        "notice_s": 1.9e9,
    }
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_beats_and_done_are_read_from_the_jobs_own_directory(box: ProcessBox) -> None:
    plan = box.plan("/bin/sh", "-c", 'echo 17 > "$BEAT"; : > "$DONE"; sleep 1000')
    files = box.runtime.job_files(plan.key)
    env = {**plan.env, "BEAT": files.beat_file, "DONE": files.done_file}
    handle = box.runtime.start(box.plan(*plan.argv, job_id=plan.job_id, env=env))
    wait_until(lambda: box.runtime.done(handle), what="the done file")
    assert box.runtime.beat(handle) == b"17\n"


@pytest.mark.parametrize(
    "trick",
    ["ln -s /etc/passwd beat", "mkfifo beat", "mkdir beat", "ln -s nowhere beat"],
)
def test_a_beat_file_that_is_a_trick_is_no_beat(box: ProcessBox, trick: str) -> None:
    job_id = str(box.plans + 1)
    job_dir = box.runtime.job_files(box.plan("/bin/true", job_id=job_id).key).job_dir
    handle = box.sh(f"{trick}", cwd=job_dir, job_id=job_id)
    assert box.wait_exit(handle).code == 0
    assert box.runtime.beat(handle) is None


def test_forgetting_deletes_the_directory_and_follows_no_link(
    box: ProcessBox, tmp_path: Path
) -> None:
    keep = tmp_path / "keep"
    keep.mkdir()
    (keep / "file").write_text("mine")
    job_id = str(box.plans + 1)
    job_dir = box.runtime.job_files(box.plan("/bin/true", job_id=job_id).key).job_dir
    handle = box.sh(f"ln -s {keep} link; ln -s {keep}/file done", cwd=job_dir, job_id=job_id)
    box.wait_exit(handle)
    box.runtime.forget(handle)
    assert not box.path(handle).exists()
    assert (keep / "file").read_text() == "mine"


def test_directories_a_job_left_are_set_aside_and_not_descended_into(box: ProcessBox) -> None:
    job_id = str(box.plans + 1)
    job_dir = box.runtime.job_files(box.plan("/bin/true", job_id=job_id).key).job_dir
    handle = box.sh("mkdir -p a/b; echo x > a/b/c", cwd=job_dir, job_id=job_id)
    box.wait_exit(handle)
    box.runtime.forget(handle)
    assert not box.path(handle).exists()
    assert (box.state_dir / "leftover" / str(handle.key) / "a/b/c").read_text() == "x\n"


def test_nothing_of_an_attempt_but_its_own_directory_is_the_jobs(box: ProcessBox) -> None:
    handle = box.sh("exec sleep 1000")
    wait_until(lambda: box.runtime.started(handle), what="the start record")
    modes = {
        path.name: oct(stat.S_IMODE(path.lstat().st_mode)) for path in box.path(handle).iterdir()
    }
    assert modes.pop("job") == "0o700"
    assert set(modes.values()) == {"0o600"}
    assert oct(stat.S_IMODE(box.path(handle).stat().st_mode)) == "0o711"


def test_a_start_that_has_no_room_says_so_and_leaves_nothing(box: ProcessBox) -> None:
    (box.state_dir / "attempts" / "77.1.0").write_text("in the way")
    with pytest.raises(RuntimeFault):
        box.sh("true", job_id="77")
    (box.state_dir / "attempts" / "77.1.0").unlink()


def test_a_submitters_job_needs_a_state_directory_it_can_pass(box: ProcessBox) -> None:
    box.state_dir.chmod(0o700)
    with pytest.raises(LaunchRefused, match="0711"):
        box.sh("true", run_as="submitter", uid=12345, gid=12345)


def test_memory_beyond_the_limit_is_an_oom_kill_on_record(tmp_path: Path) -> None:
    with process_box(tmp_path / "state") as box:
        if box.tree.mode == "none":
            pytest.skip(f"no control groups here: {box.tree.why}")
        record = box.wait_exit(
            box.sh("exec head -c 200000000 /dev/zero | tail", memory_bytes=32 << 20)
        )
        assert record.oom_kills >= 1
        assert record.peak_memory_bytes is not None
        assert record.peak_memory_bytes <= 32 << 20


def test_a_fork_bomb_stops_at_its_limit_and_dies(tmp_path: Path) -> None:
    with process_box(tmp_path / "state") as box:
        if box.tree.mode == "none":
            pytest.skip(f"no control groups here: {box.tree.why}")
        handle = box.sh("bomb() { while :; do sleep 1000 & done; }; bomb; sleep 1000", pids_max=32)
        wait_until(lambda: re.search(rb"[Cc]annot fork", box.log(handle)), what="a full group")
        wait_until(lambda: box.runtime.poll(handle), what="the shell's own end")
        assert box.wait_exit(handle).remaining_pids == 0


def test_usage_of_a_living_job_is_told_by_its_groups(tmp_path: Path) -> None:
    with process_box(tmp_path / "state") as box:
        if box.tree.mode == "none":
            pytest.skip(f"no control groups here: {box.tree.why}")
        handle = box.sh("sleep 1000 & sleep 1000 & echo ready; wait")
        box.wait_log(handle, b"ready")
        used = box.runtime.usage(handle)
        assert used.pids == 3
        assert used.memory_bytes is not None
        assert used.oom_kills == 0


def test_a_rank_without_its_records_is_found_on_the_host(box: ProcessBox) -> None:
    handle = box.sh("echo $$; exec sleep 600", epoch=7)
    (pid,) = pids_in_log(box, handle, 1)
    shutil.rmtree(box.state_dir / "attempts")
    find = finder(box.state_dir, box.tree)
    (found,) = find(()).values()
    assert (found.key, found.epoch) == (handle.key, 7)
    assert pid in found.pids
    assert len(found.pids) == 2, "its shim too"
    assert find({handle.key}) == {}
    for one in found.pids:
        with suppress(ProcessLookupError):  # the end of the shim has ended the other one
            os.kill(one, signal.SIGKILL)
    wait_until(lambda: not find(()), what="nothing of it is left")

"""A command beside a rank's main process: its rights, its limits, its bytes and its end."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from dlq_nodeagent.execs.guarded import Ending, Guarded, parse_ending, read_some, write_all
from dlq_nodeagent.model.port import Handle, RuntimeFault
from support.process_box import ProcessBox, is_alive, process_box
from support.waiting import wait_until

NOBODY = 65534
MODES = ["none", *(["host"] if os.geteuid() == 0 else [])]


@pytest.fixture(params=MODES)
def box(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ProcessBox]:
    with process_box(tmp_path / "state", request.param) as made:
        yield made


def running(box: ProcessBox, script: str = "exec sleep 1000", **fields: Any) -> Handle:
    """A rank whose main process has been exec'ed."""
    handle = box.sh(script, **fields)
    wait_until(lambda: box.runtime.started(handle) is not None, what="the start")
    return handle


@asynccontextmanager
async def inside(
    box: ProcessBox, handle: Handle, *command: str, size: tuple[int, int] | None = None
) -> AsyncIterator[Guarded]:
    """A command inside a rank; killed at the end of the block."""
    words = box.runtime.inside(
        handle, command, terminal=size is not None, variable="TERM=dumb" if size else ""
    )
    guarded = Guarded(words, size=size)
    try:
        yield guarded
    finally:
        guarded.close()
        await guarded.reap()


async def all_of(descriptor: int, over: asyncio.Event | None = None) -> bytes:
    said = b""
    while piece := await read_some(descriptor, over):
        said += piece
    return said


async def run(
    box: ProcessBox, handle: Handle, *command: str, stdin: bytes = b""
) -> tuple[Ending, bytes, bytes]:
    async with inside(box, handle, *command) as guarded:
        out = asyncio.create_task(all_of(guarded.stdout))
        err = asyncio.create_task(all_of(guarded.stderr))
        await write_all(guarded.stdin, stdin)
        guarded.close_stdin()
        return await guarded.wait(), await out, await err


async def sh(
    box: ProcessBox, handle: Handle, script: str, stdin: bytes = b""
) -> tuple[Ending, bytes, bytes]:
    return await run(box, handle, "/bin/sh", "-c", script, stdin=stdin)


async def test_bytes_go_in_and_come_out_apart_and_the_exit_code_comes_back(box: ProcessBox) -> None:
    handle = running(box)
    ending, out, err = await sh(box, handle, "cat; echo bad >&2; exit 7", stdin=b"hello")
    assert (ending, out, err) == (Ending(exit_code=7), b"hello", b"bad\n")


async def test_a_megabyte_passes_both_ways(box: ProcessBox) -> None:
    handle = running(box)
    data = os.urandom(1 << 20)
    ending, out, _ = await run(box, handle, "cat", stdin=data)
    assert ending == Ending(exit_code=0)
    assert out == data


async def test_a_signal_is_passed_on_to_the_command_and_its_group(box: ProcessBox) -> None:
    handle = running(box)
    script = "trap 'echo heard; exit 6' USR1; echo up; while :; do sleep 0.05; done"
    async with inside(box, handle, "/bin/sh", "-c", script) as guarded:
        assert await read_some(guarded.stdout) == b"up\n"
        guarded.signal(signal.SIGUSR1)
        assert await read_some(guarded.stdout) == b"heard\n"
        assert await guarded.wait() == Ending(exit_code=6)


async def test_a_signal_that_ends_the_command_is_told(box: ProcessBox) -> None:
    ending, _, _ = await sh(box, running(box), "kill -TERM $$")
    assert ending == Ending(signal=signal.SIGTERM)


async def test_it_runs_in_the_jobs_directory_with_its_environment_and_nothing_else(
    box: ProcessBox, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    env = {
        "PATH": "/usr/bin:/bin",
        "SECRET": "s3cret line\nand another",
        "CUDA_VISIBLE_DEVICES": "",
    }
    handle = running(box, cwd=str(home), env=env, umask=0o027)
    _, out, _ = await run(box, handle, "/bin/sh", "-c", "umask; pwd -P; exec env -0")
    mask, where, variables = out.decode().split("\n", 2)
    assert (int(mask, 8), where) == (0o027, str(home.resolve()))
    found = dict(each.split("=", 1) for each in variables.split("\0") if each)
    assert {name: found.get(name) for name in env} == env
    assert set(found) - set(env) <= {"PWD", "_", "SHLVL", "OLDPWD"}


@pytest.mark.parametrize("command", ["/no/such/program", "no-such-program"])
async def test_a_program_that_is_not_there_is_127_with_words(box: ProcessBox, command: str) -> None:
    ending, _, _ = await run(box, running(box), command)
    assert ending.exit_code == 127
    assert command in ending.error


async def test_a_program_that_cannot_be_run_is_126_with_words(box: ProcessBox) -> None:
    ending, _, _ = await run(box, running(box), "/etc/passwd")
    assert ending.exit_code == 126
    assert "/etc/passwd" in ending.error


async def test_what_a_command_leaves_in_the_background_ends_with_it(box: ProcessBox) -> None:
    handle = running(box)
    ending, out, _ = await sh(box, handle, "setsid sleep 1000 & echo $!; exit 0")
    assert ending == Ending(exit_code=0)
    pid = int(out)
    wait_until(lambda: not is_alive(pid), what="the end of what it left")
    assert box.runtime.poll(handle) is None


async def test_a_command_dies_with_its_leash_and_the_job_goes_on(box: ProcessBox) -> None:
    handle = running(box)
    async with inside(box, handle, "/bin/sh", "-c", "sleep 1000 & echo $$ $!; wait") as guarded:
        pids = [int(word) for word in (await read_some(guarded.stdout)).split()]
        assert all(is_alive(pid) for pid in pids)
    assert len(pids) == 2
    wait_until(lambda: not any(is_alive(pid) for pid in pids), what="the end of the command")
    assert box.runtime.poll(handle) is None


async def test_a_command_that_ignores_signals_dies_with_its_guard(box: ProcessBox) -> None:
    handle = running(box)
    async with inside(box, handle, "/bin/sh", "-c", "trap '' TERM HUP; echo $$; sleep 99") as it:
        pid = int(await read_some(it.stdout))
        os.kill(it._pid, signal.SIGKILL)
        assert await it.wait() == Ending()
    wait_until(lambda: not is_alive(pid), what="the end of the command")


async def test_the_end_of_the_rank_ends_its_commands_and_waits_for_none(box: ProcessBox) -> None:
    handle = running(box)
    async with inside(box, handle, "/bin/sh", "-c", "trap '' TERM; echo $$; sleep 1000") as guarded:
        pid = int(await read_some(guarded.stdout))
        box.runtime.kill(handle, epoch=5)
        ending = await guarded.wait()
        record = box.wait_exit(handle)
    assert ending.rank_ended or ending.signal == signal.SIGKILL
    assert record.remaining_pids == 0
    assert not is_alive(pid)
    with pytest.raises(RuntimeFault, match="does not run"):
        box.runtime.inside(handle, ["true"], terminal=False)


async def test_a_rank_that_ends_by_itself_is_not_held_up_by_a_command(box: ProcessBox) -> None:
    handle = running(box, "sleep 0.2; exit 3")
    async with inside(box, handle, "sleep", "1000"):
        record = box.wait_exit(handle, timeout_s=60)
    assert (record.code, record.remaining_pids) == (3, 0)


async def test_an_agent_that_restarts_finds_the_rank_and_can_go_inside_again(
    box: ProcessBox,
) -> None:
    handle = running(box)
    box.restart_agent()
    ending, out, _ = await sh(box, handle, "echo here")
    assert (ending, out) == (Ending(exit_code=0), b"here\n")


async def test_a_terminal_is_one_with_a_size_and_a_name(box: ProcessBox) -> None:
    handle = running(box)
    script = (
        "test -t 0 && test -t 1 && test -t 2 && stty size && echo $TERM && tty && echo x >/dev/tty"
    )
    async with inside(box, handle, "/bin/sh", "-c", script, size=(100, 40)) as guarded:
        assert guarded.has_terminal
        over = asyncio.Event()
        out = asyncio.create_task(all_of(guarded.stdout, over))
        ending = await guarded.wait()
        over.set()
        lines = (await out).decode().split("\r\n")
    assert ending == Ending(exit_code=0)
    assert lines[:2] == ["40 100", "dumb"]
    assert lines[2].startswith("/dev/pts/")
    assert lines[3] == "x"


async def test_ctrl_c_on_a_terminal_reaches_the_command_and_not_the_job(box: ProcessBox) -> None:
    handle = running(box)
    script = "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.1; done"
    async with inside(box, handle, "/bin/sh", "-c", script, size=(80, 24)) as guarded:
        said = b""
        while b"ready" not in said:
            said += await read_some(guarded.stdout)
        await write_all(guarded.stdin, b"\x03")
        while b"caught" not in said:
            said += await read_some(guarded.stdout)
        assert await guarded.wait() == Ending(exit_code=9)
    assert box.runtime.poll(handle) is None


async def test_a_new_size_is_told_to_who_sits_at_the_terminal(box: ProcessBox) -> None:
    script = "trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.1; done"
    async with inside(box, running(box), "/bin/sh", "-c", script, size=(80, 24)) as guarded:
        said = b""
        while b"ready" not in said:
            said += await read_some(guarded.stdout)
        guarded.resize(132, 50)
        while b"50 132" not in said:
            said += await read_some(guarded.stdout)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
async def test_it_has_the_jobs_user_and_groups_and_no_capability(tmp_path: Path) -> None:
    state = Path("/tmp") / f"dlq-exec-{os.getpid()}"  # a place that the user can pass through
    with process_box(state, "none") as box:
        users = state / "users.map"
        users.write_text(f"{NOBODY}:{NOBODY}:{NOBODY + 1}\n")
        users.chmod(0o644)
        ids: dict[str, Any] = {
            "run_as": "submitter",
            "uid": NOBODY,
            "gid": NOBODY,
            "groups": (NOBODY + 1,),
        }
        handle = running(box, allow_root=False, **ids)
        script = "id -u; id -G; grep -E '^(Cap|NoNewPrivs)' /proc/self/status; cat /etc/shadow"
        ending, out, err = await sh(box, handle, script)
        uid, groups, *rest = out.decode().splitlines()
        assert (uid, groups) == (str(NOBODY), f"{NOBODY} {NOBODY + 1}")
        facts = dict(line.split(":\t") for line in rest)
        assert {value for name, value in facts.items() if name.startswith("Cap")} == {"0" * 16}
        assert facts["NoNewPrivs"] == "1"
        assert ending.exit_code != 0
        assert b"ermission denied" in err
        box.runtime.kill(handle, epoch=5)
        box.wait_exit(handle)
    with suppress(OSError):
        for name in ("contact", "users.map"):
            (state / name).unlink(missing_ok=True)
        (state / "attempts").rmdir()
        state.rmdir()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
async def test_a_user_whom_the_map_does_not_know_any_more_gets_no_command(tmp_path: Path) -> None:
    state = Path("/tmp") / f"dlq-exec-map-{os.getpid()}"
    with process_box(state, "none") as box:
        users = state / "users.map"
        users.write_text(f"{NOBODY}:{NOBODY}:\n")
        users.chmod(0o644)
        handle = running(box, allow_root=False, run_as="submitter", uid=NOBODY, gid=NOBODY)
        users.write_text("4242:4242:\n")
        ending, _, _ = await sh(box, handle, "true")
        assert ending.exit_code is None
        assert "users map" in ending.error
        box.runtime.kill(handle, epoch=5)
        box.wait_exit(handle)
    with suppress(OSError):
        for name in ("contact", "users.map"):
            (state / name).unlink(missing_ok=True)
        (state / "attempts").rmdir()
        state.rmdir()


@pytest.mark.skipif("host" not in MODES, reason="needs root for control groups")
async def test_the_limits_of_the_job_hold_for_its_commands(tmp_path: Path) -> None:
    with process_box(tmp_path / "state", "host") as box:
        if box.tree.mode == "none":
            pytest.skip("no control groups here")
        handle = running(box, pids_max=16)
        script = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 5 & done"
        _, _, err = await sh(box, handle, script)
        assert b"ork" in err  # cannot fork
        _, out, _ = await run(box, handle, "cat", "/proc/self/cgroup")
        assert str(handle.key) in out.decode()


@pytest.mark.parametrize(
    ("said", "ending"),
    [
        ("started\nexit 0\n", Ending(exit_code=0)),
        ("started\nsignal 15\n", Ending(signal=15)),
        ("started\nrank_ended\n", Ending(signal=9, rank_ended=True)),
        ("", Ending()),
        ("started\n", Ending()),
        ("error cgroup 2 No such file\n", Ending(error="the rank has just ended", rank_ended=True)),
        (
            "error chdir 13 Permission denied: '/x'\n",
            Ending(exit_code=126, error="Permission denied: '/x'"),
        ),
        ("error plan 0 cut short\n", Ending(error="cut short (plan)")),
    ],
)
def test_what_the_guard_says_is_understood(said: str, ending: Ending) -> None:
    assert parse_ending(said) == ending


async def test_the_guard_gets_its_descriptors_and_no_other(box: ProcessBox) -> None:
    handle = running(box)
    mine, other = socket.socketpair()
    os.set_inheritable(other.fileno(), True)
    try:
        _, out, _ = await sh(box, handle, "ls /proc/self/fd | wc -l")
        assert int(out) <= 4  # 0, 1, 2 and that of the listing itself
    finally:
        mine.close()
        other.close()

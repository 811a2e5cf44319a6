"""A command inside a rank's container: the container's rights and limits, the job's words and
environment.
"""

import asyncio
import shutil
import struct
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from dlq_nodeagent.execs.guarded import Ending, Guarded, read_some, write_all
from dlq_nodeagent.model.port import Handle
from support.podman_box import PodmanBox, PodmanStore, needs_podman, podman_box, podman_store
from support.waiting import wait_until

pytestmark = [pytest.mark.podman, needs_podman]

USER, GROUP = 23456, 23457
LIMITS = {"STACK": 4 << 20, "NOFILE": 99, "CORE": 2**64 - 1}  # containers dump no core
MAIN = "(umask; ulimit -S -s; ulimit -S -n; ulimit -S -c) > /tmp/main; exec sleep 1000"
ENV = {"PATH": "/bin", "SECRET": "two\nlines", "CUDA_VISIBLE_DEVICES": "GPU-1"}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PodmanStore]:
    with podman_store(tmp_path_factory.mktemp("podman")) as made:
        yield made


@pytest.fixture
def box(store: PodmanStore) -> Iterator[PodmanBox]:
    # Not below pytest's own directory: the job's user must be able to pass through the path.
    state = Path(tempfile.mkdtemp(prefix="dlq-inside-"))
    state.chmod(0o711)
    users = state / "users.map"
    users.write_text(f"{USER}:{GROUP}:{GROUP + 1}\n")
    users.chmod(0o644)
    with podman_box(state, store) as made:
        yield made
    shutil.rmtree(state)


def running(box: PodmanBox, script: str = "exec sleep 1000", **fields: Any) -> Handle:
    known: dict[str, Any] = {
        "run_as": "submitter",
        "allow_root": False,
        "uid": USER,
        "gid": GROUP,
        "groups": (GROUP + 1,),
        "env": ENV,
        "cwd": "/tmp",
    }
    handle = box.sh(script, **(known | fields))
    wait_until(
        lambda: box.runtime.started(handle) is not None or box.runtime.poll(handle) is not None,
        what="the start",
    )
    assert box.runtime.poll(handle) is None, box.log(handle)
    return handle


@asynccontextmanager
async def inside(
    box: PodmanBox, handle: Handle, *command: str, size: tuple[int, int] | None = None
) -> AsyncIterator[Guarded]:
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


async def sh(
    box: PodmanBox, handle: Handle, script: str, stdin: bytes = b""
) -> tuple[Ending, str, str]:
    async with inside(box, handle, "/bin/sh", "-c", script) as guarded:
        out = asyncio.create_task(all_of(guarded.stdout))
        err = asyncio.create_task(all_of(guarded.stderr))
        await write_all(guarded.stdin, stdin)
        guarded.close_stdin()
        return await guarded.wait(), (await out).decode(), (await err).decode()


async def test_bytes_pass_both_ways_and_the_exit_code_comes_back(box: PodmanBox) -> None:
    ending, out, err = await sh(box, running(box), "cat; echo bad >&2; exit 7", b"hello")
    assert (ending, out, err) == (Ending(exit_code=7), "hello", "bad\n")


async def test_it_has_the_jobs_user_directory_environment_and_no_capability(
    box: PodmanBox,
) -> None:
    handle = running(box, MAIN, umask=0o027, soft_limits=LIMITS)
    script = 'id -u; id -G; pwd; cat /proc/self/status; echo "[$SECRET]" $CUDA_VISIBLE_DEVICES'
    limits = "umask; ulimit -S -s; ulimit -S -n; ulimit -S -c"
    _, out, _ = await sh(box, handle, f"{limits}; cat /tmp/main; {script}")
    lines = out.splitlines()
    assert lines[:4] == lines[4:8] == ["0027", "4096", "99", "0"]
    del lines[:8]
    assert lines[0] == str(USER)
    assert set(lines[1].split()) == {str(GROUP), str(GROUP + 1)}
    assert lines[2] == "/tmp"
    facts = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    assert {facts[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {
        "0" * 16
    }
    assert facts["NoNewPrivs"] == "1"
    assert out.endswith("[two\nlines] GPU-1\n")


async def test_it_has_what_the_main_process_has_and_nothing_more(box: PodmanBox) -> None:
    """Name spaces, groups and what is left of system calls: the two are compared as the kernel
    says.
    """
    handle = running(box)
    script = (
        "for i in mnt pid ipc net uts cgroup; do ls -l /proc/self/ns/$i; done; cat "
        "/proc/self/cgroup"
    )
    _, out, _ = await sh(box, handle, script + "; cat /proc/self/status /proc/self/limits")
    started = box.runtime.started(handle)
    assert started is not None
    main = Path(f"/proc/{started.main_pid}")
    mine = {line.split("-> ")[1] for line in out.splitlines() if "-> " in line}
    assert mine == {
        (main / "ns" / name).readlink().as_posix()
        for name in ("mnt", "pid", "ipc", "net", "uts", "cgroup")
    }
    theirs = (main / "status").read_text().splitlines()
    for fact in ("Seccomp:", "NoNewPrivs:", "Uid:", "Gid:"):
        assert next(x for x in theirs if x.startswith(fact)) in out
    for line in (main / "limits").read_text().splitlines():
        if line.startswith(("Max open files", "Max processes", "Max core")):
            assert line in out


async def test_nothing_of_the_command_or_the_environment_shows_on_the_host(box: PodmanBox) -> None:
    handle = running(box)
    async with inside(box, handle, "/bin/sh", "-c", "echo up; sleep 100 # canary") as guarded:
        assert b"up" in await read_some(guarded.stdout)
        shown = box.store.client.ask("inspect", *box.store.containers())
        engine = engine_words()
    assert engine
    assert not any(b"canary" in line or b"two\nlines" in line for line in engine)
    assert "two\nlines" not in shown
    assert "canary" not in shown


def engine_words() -> list[bytes]:
    """Command lines of the host's `podman exec`s, our own guard apart (the user may see it
    anyway).
    """
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(path.read_bytes())
    return [
        each
        for each in found
        if b"podman\0" in each and b"\0exec\0" in each and b"shim" not in each
    ]


@pytest.mark.parametrize(("command", "code"), [("no-such-program", 127), ("/etc/passwd", 126)])
async def test_a_program_that_cannot_be_run_says_so_and_has_a_shells_code(
    box: PodmanBox, command: str, code: int
) -> None:
    async with inside(box, running(box), command) as guarded:
        err = asyncio.create_task(all_of(guarded.stderr))
        assert await guarded.wait() == Ending(exit_code=code)
        assert command.encode() in await err


async def test_a_command_dies_with_its_leash_and_the_job_goes_on(box: PodmanBox) -> None:
    handle = running(box)
    before = box.groups_left(handle)
    async with inside(box, handle, "/bin/sh", "-c", "sleep 1000 & echo up; wait") as guarded:
        assert b"up" in await read_some(guarded.stdout)
        wait_until(lambda: len(box.groups_left(handle) - before) >= 2, what="its processes")
    wait_until(lambda: box.groups_left(handle) == before, what="their end")
    assert box.runtime.poll(handle) is None


async def test_the_end_of_the_rank_ends_its_commands_and_waits_for_none(box: PodmanBox) -> None:
    handle = running(box)
    async with inside(box, handle, "/bin/sh", "-c", "trap '' TERM; echo up; sleep 99") as guarded:
        assert b"up" in await read_some(guarded.stdout)
        box.runtime.kill(handle, epoch=5)
        record = box.wait_exit(handle)
        ending = await guarded.wait()
    assert record.remaining_pids == 0
    assert ending.rank_ended or ending.exit_code == 137
    assert box.store.containers() == []


async def test_a_terminal_has_a_size_and_keeps_ctrl_c_to_itself(box: PodmanBox) -> None:
    handle = running(box)
    script = (
        "trap 'echo caught; exit 9' INT; test -t 0 && echo $TERM ready; while :; do sleep 1; done"
    )
    async with inside(box, handle, "/bin/sh", "-c", script, size=(100, 40)) as guarded:
        said = b""
        while b"dumb ready" not in said:
            said += await read_some(guarded.stdout)
        await write_all(guarded.stdin, b"\x03")
        while b"caught" not in said:
            said += await read_some(guarded.stdout)
        assert await guarded.wait() == Ending(exit_code=9)
    assert box.runtime.poll(handle) is None


async def test_an_agent_that_restarts_can_go_inside_again(box: PodmanBox) -> None:
    handle = running(box)
    box.restart_agent()
    ending, out, _ = await sh(box, handle, "echo here")
    assert (ending, out) == (Ending(exit_code=0), "here\n")


async def test_a_forward_reaches_a_port_of_the_container_alone(box: PodmanBox) -> None:
    """dlq-init is in each container already, and connects to the ports there (init/forward.c)."""
    handle = running(box, "echo hi | busybox nc -l -p 18437; exec sleep 1000")
    program = box.runtime.boxed_init(handle)
    head = struct.Struct("!cII")
    async with inside(box, handle, program, "forward") as guarded:
        said = b""

        async def until(letter: bytes) -> bytes:
            nonlocal said
            while letter not in said:
                piece = await asyncio.wait_for(read_some(guarded.stdout), 20.0)
                assert piece, said
                said += piece
            return said

        await until(b"h")
        await write_all(guarded.stdin, head.pack(b"o", 1, 1))
        assert b"nothing listens on port 1 " in await until(b"loopback")
        for stream in range(2, 600):  # until it listens
            said = b""
            await write_all(guarded.stdin, head.pack(b"o", stream, 18437))
            while head.pack(b"k", stream, 0) not in said and b"job" not in said:
                said += await asyncio.wait_for(read_some(guarded.stdout), 20.0)
            if head.pack(b"k", stream, 0) in said:
                break
            assert b"nothing listens" in said, said
            await asyncio.sleep(0.1)
        assert b"hi\n" in await until(b"hi\n")

"""Containers whose agent, podman, conmon or shim is killed: one known verdict each, and no leak."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dlq_nodeagent.runtimes.port import ExitWhy, Handle
from support.podman_box import PodmanBox, PodmanStore, needs_podman, podman_box, podman_store
from support.process_box import is_alive
from support.waiting import wait_until

pytestmark = [pytest.mark.podman, needs_podman]

FOREVER = "echo up; while :; do sleep 1; done"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PodmanStore]:
    with podman_store(tmp_path_factory.mktemp("podman")) as made:
        yield made


@pytest.fixture
def box(tmp_path: Path, store: PodmanStore) -> Iterator[PodmanBox]:
    with podman_box(tmp_path / "state", store) as made:
        yield made


def assert_nothing_left(box: PodmanBox, handle: Handle) -> None:
    """No process, no container, no control group."""
    assert box.groups_left(handle) == set()
    assert box.store.containers() == []
    assert not [each.path for each in box.attempt(handle).dirs if Path(each.path).exists()]


def test_a_container_that_ends_by_itself_leaves_nothing(box: PodmanBox) -> None:
    handle = box.sh("exit 3")
    assert box.wait_exit(handle).code == 3
    assert_nothing_left(box, handle)


def test_a_killed_conmon_costs_nothing_the_job_goes_on_and_its_code_is_known(
    box: PodmanBox,
) -> None:
    handle = box.sh("trap 'echo saved; exit 42' TERM; echo up; while :; do sleep 0.1; done")
    box.wait_log(handle, b"up")
    os.kill(box.conmon_pid(handle), signal.SIGKILL)
    box.runtime.signal(handle, signal.SIGTERM, epoch=5)
    record = box.wait_exit(handle)
    assert (record.why, record.code, record.signal) == (ExitWhy.EXITED, 42, None)
    assert box.log(handle).endswith(b"saved\n")
    assert_nothing_left(box, handle)


def test_a_container_without_its_conmon_is_killed_like_any_other(box: PodmanBox) -> None:
    handle = box.sh(f"trap '' TERM; {FOREVER}")
    box.wait_log(handle, b"up")
    os.kill(box.conmon_pid(handle), signal.SIGKILL)
    box.runtime.kill(handle, epoch=5)
    record = box.wait_exit(handle)
    assert (record.why, record.signal) == (ExitWhy.KILLED, signal.SIGKILL)
    assert_nothing_left(box, handle)


def test_a_container_killed_from_outside_is_a_job_killed_by_a_signal(box: PodmanBox) -> None:
    handle = box.sh(FOREVER)
    box.wait_log(handle, b"up")
    os.kill(box.init_pid(handle), signal.SIGKILL)
    record = box.wait_exit(handle)
    assert (record.why, record.signal) == (ExitWhy.EXITED, signal.SIGKILL)
    assert_nothing_left(box, handle)


def test_an_operators_podman_stop_reaches_the_job(box: PodmanBox) -> None:
    handle = box.sh("trap 'exit 9' TERM; echo up; while :; do sleep 0.1; done")
    box.wait_log(handle, b"up")
    name = box.store.containers()[0]
    box.store.client.ask("kill", "--signal=TERM", name)
    assert box.wait_exit(handle).code == 9


def test_an_agent_that_dies_loses_nothing(box: PodmanBox) -> None:
    living, ended = box.sh(f"trap 'exit 8' TERM; {FOREVER}"), box.sh("exit 5")
    box.wait_log(living, b"up")
    box.restart_agent()
    assert box.wait_exit(ended).code == 5
    box.runtime.signal(living, signal.SIGTERM, epoch=5)
    assert box.wait_exit(living).code == 8


def test_a_killed_shim_takes_its_container_along_even_without_an_agent(box: PodmanBox) -> None:
    handle = box.sh(FOREVER)
    box.wait_log(handle, b"up")
    init = box.init_pid(handle)
    started = wait_until(lambda: box.runtime.started(handle), what="the start record")
    assert started is not None
    os.kill(started.shim_pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(init), what="the end of the container")
    assert box.wait_exit(handle).why is ExitWhy.SHIM_LOST
    wait_until(lambda: box.store.containers() == [], what="the removal of the container")
    assert box.groups_left(handle) == set()


def test_what_a_shim_and_an_agent_left_together_is_swept_by_the_next_agent(box: PodmanBox) -> None:
    handle = box.sh(FOREVER)
    box.wait_log(handle, b"up")
    started = wait_until(lambda: box.runtime.started(handle), what="the start record")
    assert started is not None
    conmon, init = box.conmon_pid(handle), box.init_pid(handle)
    os.kill(started.shim_pid, signal.SIGSTOP)
    for pid in (conmon, started.shim_pid, init):
        os.kill(pid, signal.SIGKILL)
    box.restart_agent()
    assert box.wait_exit(handle).why is ExitWhy.SHIM_LOST
    wait_until(lambda: box.store.containers() == [], what="the removal of the container")


def client_of(shim_pid: int) -> int | None:
    """The podman client that a shim waits for, while there is one."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
            command = (path.parent / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if int(text.rpartition(")")[2].split()[1]) == shim_pid and b"run" in command:
            return int(path.parent.name)
    return None


def shim_of(handle: Handle) -> int | None:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"dlq-shim") and words[1].endswith(f"/{handle.key}".encode()):
            return int(path.parent.name)
    return None


@pytest.mark.parametrize("turns", [0, 3, 10, 30, 100])
def test_a_podman_killed_while_it_makes_a_container_gives_one_verdict(
    box: PodmanBox, turns: int
) -> None:
    """Killed after it has been seen that many times: somewhere between its start and its end."""
    handle = box.sh("echo up; sleep 0.2; exit 6")
    shim = wait_until(lambda: shim_of(handle), what="the shim")
    assert shim is not None
    client = wait_until(lambda: client_of(shim), what="podman run")
    assert client is not None
    for _ in range(turns):
        if not is_alive(client):
            break
    with suppress(ProcessLookupError):
        os.kill(client, signal.SIGKILL)
    record = box.wait_exit(handle)
    if record.why is ExitWhy.START_ERROR:
        assert record.start_error is not None
        assert record.start_error.stage == "container"
        assert (record.code, record.signal) == (None, None)
    else:
        assert (record.why, record.code) == (ExitWhy.EXITED, 6)
    assert_nothing_left(box, handle)


def test_a_kill_while_podman_makes_the_container_leaves_nothing(box: PodmanBox) -> None:
    handle = box.sh(FOREVER)
    box.runtime.kill(handle, epoch=5)
    record = box.wait_exit(handle)
    assert (record.why, record.signal) == (ExitWhy.KILLED, signal.SIGKILL)
    assert_nothing_left(box, handle)


def test_an_image_that_has_gone_is_the_hosts_failure_in_podmans_words(box: PodmanBox) -> None:
    handle = box.sh("true", inside={"image": "0" * 64})
    record = box.wait_exit(handle)
    assert record.why is ExitWhy.START_ERROR
    assert record.start_error is not None
    assert record.start_error.stage == "container"
    assert "0000" in record.start_error.text
    assert b"dlq: cannot run the job: container" in box.log(handle)

"""Containers whose agent, podman, conmon or shim is killed: one known verdict each, and no leak."""

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dlq_nodeagent.model.port import ExitWhy, Handle
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


@pytest.mark.parametrize("delay_s", [0.005, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3])
def test_a_podman_killed_while_it_makes_a_container_gives_one_verdict(
    store: PodmanStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delay_s: float
) -> None:
    """Killed so long after its start: somewhere on its way, or not at all."""
    wrapper = tmp_path / "podman"
    wrapper.write_text(
        '#!/bin/sh\ncase " $* " in *" run "*) exec timeout -s KILL '
        f'{delay_s} podman "$@";; esac\nexec podman "$@"\n'
    )
    wrapper.chmod(0o755)
    monkeypatch.setattr(store, "client", replace(store.client, program=str(wrapper)))
    with podman_box(tmp_path / "state", store) as box:
        handle = box.sh("echo up; sleep 0.2; exit 6")
        record = box.wait_exit(handle, timeout_s=60)
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

"""What every runtime promises, shown by the real ones and by the fake."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from dlq_nodeagent.model.launch import LaunchPlan, RankKey
from dlq_nodeagent.model.port import (
    AttemptExists,
    ExitRecord,
    ExitWhy,
    Handle,
    Runtime,
    RuntimeFault,
    StaleEpoch,
    StopNotice,
    UnknownAttempt,
)
from dlq_nodeagent.runtimes.fake.runtime import FakeHost, FakeRuntime
from support.fake_clock import FakeClock
from support.podman_box import PodmanStore, needs_podman, podman_box, podman_store
from support.process_box import ProcessBox, process_box
from support.waiting import wait_until

LONG_S = 1000.0
NOTICE = StopNotice(kind="preempt", reason="a test", deadline_s=2e9, notice_s=1.9e9)


class Box(Protocol):
    """A runtime and the world below it."""

    @property
    def runtime(self) -> Runtime: ...

    def start(
        self,
        *,
        runs_for_s: float = 0,
        exit_code: int = 0,
        ignores_signals: bool = False,
        saves: bool = False,
        log: str = "",
        startable: bool = True,
        hold_s: float = 3600,
        grace_s: float = 300,
        silent_s: float = 0,
        head_bytes: int = 1 << 20,
        beside: Handle | None = None,
        worker_failures: int = 0,
        steps: str = "",
    ) -> Handle:
        """Start such a job (with an id of its own) and return when it is ready for signals,
        `silent_s` after the last contact; `beside` a rank of the same attempt, as the one after it;
        `worker_failures`: by what its torchrun leaves behind; `steps`: the list it writes, with
        \\t and \\n."""
        ...

    def let_pass(self, seconds: float) -> None:
        """Time in which nothing is expected to happen but what is due."""
        ...

    def wait_exit(self, handle: Handle) -> ExitRecord: ...
    def renew_contact(self) -> None: ...
    def restart_agent(self) -> None: ...
    def notice_seen(self, handle: Handle) -> bool: ...
    def save_asked(self, handle: Handle) -> int: ...


class RealBox:
    """The `process` runtime, or with a PodmanBox the `podman` one; time passes by itself."""

    def __init__(self, box: ProcessBox) -> None:
        self._box = box

    @property
    def runtime(self) -> Runtime:
        return self._box.runtime

    def start(
        self,
        *,
        runs_for_s: float = 0,
        exit_code: int = 0,
        ignores_signals: bool = False,
        saves: bool = False,
        log: str = "",
        startable: bool = True,
        hold_s: float = 3600,
        grace_s: float = 300,
        silent_s: float = 0,
        head_bytes: int = 1 << 20,
        beside: Handle | None = None,
        worker_failures: int = 0,
        steps: str = "",
    ) -> Handle:
        self._box.contact_was(silent_s)
        trap = "''" if ignores_signals else "'exit 99'" if saves else "-"
        script = f"trap {trap} TERM USR1; printf '%s' '{log}.'; "
        if worker_failures:
            logs = f"{self._job_dir()}/torchrun/17.1_x7"
            script = f"mkdir -p {logs}/attempt_0 {logs}/attempt_{worker_failures}/0; {script}"
        if steps:
            script = f"printf '{steps}' > {self._job_dir()}/steps; {script}"
        if runs_for_s:
            script += f"sleep {runs_for_s} & until wait $!; do :; done; "
        same = _rank_after(beside) if beside else {}
        handle = self._box.run(
            "/bin/sh" if startable else "/no/such/file",
            *("-c", script + f"exit {exit_code}"),
            hold_s=hold_s,
            grace_s=grace_s,
            term_s=min(1.0, grace_s / 2),
            log_head_bytes=head_bytes,
            **same,
        )
        if startable:
            self._box.wait_log(handle, b".")
        return handle

    def _job_dir(self) -> str:
        """Of the job that is started next."""
        return self.runtime.job_files(RankKey(str(self._box.plans + 1), 1, 0)).job_dir

    def let_pass(self, seconds: float) -> None:
        pass

    def wait_exit(self, handle: Handle) -> ExitRecord:
        return self._box.wait_exit(handle)

    def renew_contact(self) -> None:
        self._box.contact.renew(self._box.clock.boottime_s())

    def restart_agent(self) -> None:
        self._box.restart_agent()

    def notice_seen(self, handle: Handle) -> bool:
        return Path(self._box.runtime.job_files(handle.key).preempt_file).exists()

    def save_asked(self, handle: Handle) -> int:
        path = Path(self.runtime.job_files(handle.key).save_file)
        return int(json.loads(path.read_text())["number"]) if path.exists() else 0


def _rank_after(handle: Handle) -> dict[str, Any]:
    key = handle.key
    return {"job_id": key.job_id, "attempt": key.attempt, "node_rank": key.node_rank + 1}


class PretendBox:
    """The `fake` runtime; time passes when somebody waits."""

    def __init__(self) -> None:
        self._clock = FakeClock()
        self._host = FakeHost(self._clock)
        self._fake = FakeRuntime(self._host)
        self._started = 0

    @property
    def runtime(self) -> Runtime:
        return self._fake

    def start(
        self,
        *,
        runs_for_s: float = 0,
        exit_code: int = 0,
        ignores_signals: bool = False,
        saves: bool = False,
        log: str = "",
        startable: bool = True,
        hold_s: float = 3600,
        grace_s: float = 300,
        silent_s: float = 0,
        head_bytes: int = 1 << 20,
        beside: Handle | None = None,
        worker_failures: int = 0,
        steps: str = "",
    ) -> Handle:
        self._started += 1
        if silent_s:
            self.renew_contact()
            self._clock.advance(silent_s)
        words = [f"run_for={runs_for_s}", f"exit_code={exit_code}", f"log={log}."]
        words += ["ignores_signals=yes"] * ignores_signals + ["saves_for=0.1"] * saves
        words += [f"worker_failures={worker_failures}", f"steps={steps}"]
        words += [] if startable else ["start_error=No such file or directory"]
        place: dict[str, Any] = {"job_id": str(self._started), "attempt": 1, "node_rank": 0}
        return self._fake.start(
            LaunchPlan(
                **place | (_rank_after(beside) if beside else {}),
                epoch=5,
                argv=("fake", *words),
                uid=1000,
                gid=1000,
                hold_s=hold_s,
                grace_s=grace_s,
                term_s=min(1.0, grace_s / 2),
                log_head_bytes=head_bytes,
            )
        )

    def let_pass(self, seconds: float) -> None:
        self._clock.advance(seconds)

    def wait_exit(self, handle: Handle) -> ExitRecord:
        for _ in range(10_000):
            record = self._fake.poll(handle)
            if record is not None:
                return record
            self._clock.advance(0.1)
        raise AssertionError(f"{handle.key} never ended")

    def renew_contact(self) -> None:
        self._host.renew_contact()

    def restart_agent(self) -> None:
        self._fake = FakeRuntime(self._host)
        self._fake.recover()

    def notice_seen(self, handle: Handle) -> bool:
        return self._fake.notice_of(handle) is not None

    def save_asked(self, handle: Handle) -> int:
        return self._fake.save_number_of(handle)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PodmanStore]:
    """Asked for only by tests that run containers."""
    with podman_store(tmp_path_factory.mktemp("podman")) as made:
        yield made


PODMAN = pytest.param("podman", marks=[pytest.mark.podman, needs_podman])


@pytest.fixture(params=["process", "process without cgroups", "fake", PODMAN])
def box(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Box]:
    if request.param == "fake":
        yield PretendBox()
        return
    if request.param == "podman":
        with podman_box(tmp_path / "state", request.getfixturevalue("store")) as contained:
            yield RealBox(contained)
        return
    mode = "host" if request.param == "process" else "none"
    with process_box(tmp_path / "state", mode) as real:
        yield RealBox(real)


@pytest.mark.parametrize("code", [0, 1, 99, 255])
def test_an_exit_code_is_reported_as_it_was(box: Box, code: int) -> None:
    record = box.wait_exit(box.start(exit_code=code))
    assert (record.why, record.code, record.signal) == (ExitWhy.EXITED, code, None)


def test_a_record_carries_the_fence_and_two_ordered_instants(box: Box) -> None:
    handle = box.start()
    record = box.wait_exit(handle)
    assert (record.key, record.epoch) == (handle.key, 5)
    assert record.started_boottime_ns is not None
    assert record.started_boottime_ns <= record.ended_boottime_ns


def test_what_cannot_be_started_still_ends_with_a_record(box: Box) -> None:
    handle = box.start(startable=False)
    record = box.wait_exit(handle)
    assert record.why is ExitWhy.START_ERROR
    assert record.start_error is not None
    assert record.start_error.stage == "exec"
    assert record.start_error.text.startswith("No such file or directory")
    assert (record.code, record.signal) == (None, None)
    assert box.runtime.started(handle) is None


def test_the_same_attempt_is_not_started_twice(box: Box) -> None:
    handle = box.start(runs_for_s=LONG_S)
    again = LaunchPlan(
        job_id=handle.key.job_id,
        attempt=handle.key.attempt,
        epoch=6,
        node_rank=handle.key.node_rank,
        argv=("/bin/true",),
        uid=os.geteuid(),
        gid=os.getegid(),
        allow_root=True,
    )
    with pytest.raises(AttemptExists):
        box.runtime.start(again)
    assert box.runtime.poll(handle) is None


def test_a_signal_reaches_the_main_process(box: Box) -> None:
    handle = box.start(runs_for_s=LONG_S)
    box.runtime.signal(handle, signal.SIGUSR1, epoch=5)
    record = box.wait_exit(handle)
    assert (record.why, record.signal) == (ExitWhy.EXITED, signal.SIGUSR1)


def test_kill_ends_a_job_that_ignores_signals(box: Box) -> None:
    handle = box.start(runs_for_s=LONG_S, ignores_signals=True)
    box.runtime.signal(handle, signal.SIGTERM, epoch=5)
    box.runtime.kill(handle, epoch=5)
    record = box.wait_exit(handle)
    assert (record.why, record.signal) == (ExitWhy.KILLED, signal.SIGKILL)


def test_a_job_that_saves_in_its_grace_exits_by_itself(box: Box) -> None:
    handle = box.start(runs_for_s=LONG_S, saves=True)
    box.runtime.stop(handle, epoch=5, signal=signal.SIGTERM, grace_s=60, term_s=5)
    record = box.wait_exit(handle)
    assert (record.why, record.code, record.noticed) == (ExitWhy.EXITED, 99, "stop")


def test_a_job_that_ignores_its_grace_is_killed_at_its_end(box: Box) -> None:
    handle = box.start(runs_for_s=LONG_S, ignores_signals=True)
    box.runtime.stop(handle, epoch=5, signal=signal.SIGUSR1, grace_s=0.3, term_s=0.1)
    record = box.wait_exit(handle)
    assert (record.why, record.signal, record.noticed) == (ExitWhy.STOPPED, 9, "stop")


def test_a_job_deaf_to_its_own_signal_gets_a_blunt_sigterm(box: Box) -> None:
    handle = box.start(runs_for_s=LONG_S, saves=True)
    box.runtime.stop(handle, epoch=5, signal=0, grace_s=2.0, term_s=1.9)
    record = box.wait_exit(handle)
    assert (record.why, record.code) == (ExitWhy.EXITED, 99)


def test_a_rank_that_stands_still_does_nothing_until_it_may_move_again(box: Box) -> None:
    handle = box.start(runs_for_s=LONG_S, saves=True)
    still = box.runtime.standstill(handle)
    still.freeze()
    still.freeze()
    box.runtime.signal(handle, signal.SIGUSR1, epoch=5)
    box.let_pass(0.2)
    assert box.runtime.poll(handle) is None
    box.restart_agent()
    still = box.runtime.standstill(handle)
    still.thaw()
    still.thaw()
    assert box.wait_exit(handle).code == 99


def test_a_kill_ends_a_rank_that_stands_still(box: Box) -> None:
    handle = box.start(runs_for_s=LONG_S, ignores_signals=True)
    box.runtime.standstill(handle).freeze()
    box.runtime.kill(handle, epoch=5)
    record = box.wait_exit(handle)
    assert (record.why, record.signal) == (ExitWhy.KILLED, signal.SIGKILL)


def test_a_later_stop_replaces_the_grace_of_an_earlier_one(box: Box) -> None:
    handle = box.start(runs_for_s=LONG_S, ignores_signals=True)
    box.runtime.stop(handle, epoch=5, signal=signal.SIGTERM, grace_s=900, term_s=5)
    box.runtime.stop(handle, epoch=5, signal=0, grace_s=0.1, term_s=0)
    assert box.wait_exit(handle).why is ExitWhy.STOPPED


def test_a_lower_epoch_is_refused_and_a_higher_one_is_remembered(box: Box) -> None:
    handle = box.start(runs_for_s=LONG_S)
    box.runtime.signal(handle, signal.SIGCONT, epoch=7)
    with pytest.raises(StaleEpoch):
        box.runtime.kill(handle, epoch=6)
    assert box.runtime.poll(handle) is None


def test_commands_to_an_ended_attempt_do_nothing(box: Box) -> None:
    handle = box.start(exit_code=3)
    first = box.wait_exit(handle)
    box.runtime.kill(handle, epoch=9)
    box.runtime.signal(handle, signal.SIGTERM, epoch=9)
    box.runtime.notice(handle, None)
    assert box.runtime.poll(handle) == first


def test_silence_longer_than_the_hold_ends_the_job(box: Box) -> None:
    handle = box.start(runs_for_s=LONG_S, ignores_signals=True, hold_s=0.6, grace_s=0.2)
    record = box.wait_exit(handle)
    assert (record.why, record.noticed) == (ExitWhy.HOLD_EXPIRED, "hold_expired")
    assert box.notice_seen(handle)


def test_a_job_that_saves_when_its_hold_runs_out_exits_by_itself(box: Box) -> None:
    handle = box.start(runs_for_s=LONG_S, saves=True)
    box.renew_contact()
    box.runtime.extend_hold(handle, epoch=5, hold_s=3.0)
    record = box.wait_exit(handle)
    assert (record.why, record.code, record.noticed) == (ExitWhy.EXITED, 99, "hold_expired")


def withdrawn(box: Box, *, grace_s: float, runs_for_s: float = LONG_S) -> Handle:
    """A job that was told to leave in `grace_s` because of a silence, which then was over.

    It is told a while after its start: a shell that has set no trap yet would die of it.
    """
    handle = box.start(
        runs_for_s=runs_for_s,
        ignores_signals=True,
        hold_s=2 * grace_s,
        grace_s=grace_s,
        silent_s=grace_s - 1.5,
    )

    def noticed() -> bool:
        box.let_pass(0.1)
        return box.notice_seen(handle)

    wait_until(noticed, what="the notice")
    box.renew_contact()
    box.runtime.extend_hold(handle, epoch=5, hold_s=3600)
    wait_until(lambda: not box.notice_seen(handle), what="the end of the notice")
    return handle


def test_a_notice_that_was_withdrawn_explains_an_end_within_the_time_it_gave(box: Box) -> None:
    handle = withdrawn(box, grace_s=20.0)
    box.runtime.signal(handle, signal.SIGKILL, epoch=5)
    record = box.wait_exit(handle)
    assert (record.why, record.signal, record.noticed) == (ExitWhy.EXITED, 9, "hold_expired")
    assert record.noticed_boottime_ns is not None


def test_a_notice_that_was_withdrawn_long_ago_explains_nothing(box: Box) -> None:
    record = box.wait_exit(withdrawn(box, grace_s=2.0, runs_for_s=4.5))
    assert (record.code, record.noticed, record.noticed_boottime_ns) == (0, None, None)


def test_a_job_that_was_told_to_stop_is_not_told_of_a_silence_too(box: Box) -> None:
    handle = box.start(runs_for_s=LONG_S, ignores_signals=True, silent_s=20.0)
    box.runtime.notice(handle, NOTICE)
    box.runtime.stop(handle, epoch=5, signal=0, grace_s=900, term_s=5)
    for hold_s in (40.0, 3600.0):
        box.runtime.extend_hold(handle, epoch=5, hold_s=hold_s)
    box.runtime.kill(handle, epoch=5)
    assert box.wait_exit(handle).noticed == "stop"
    assert box.notice_seen(handle)


def test_a_longer_hold_can_be_given_while_it_runs(box: Box) -> None:
    handle = box.start(runs_for_s=2.5, hold_s=2.0, grace_s=0.1)
    box.runtime.extend_hold(handle, epoch=5, hold_s=3600)
    assert box.wait_exit(handle).why is ExitWhy.EXITED


def test_contact_that_is_renewed_keeps_the_job_alive(box: Box) -> None:
    handle = box.start(runs_for_s=1.5, ignores_signals=True, hold_s=1.0, grace_s=0.2)
    ended: list[ExitRecord] = []

    def renew_and_look() -> bool:
        box.renew_contact()
        box.let_pass(0.1)
        ended.extend(box.runtime.exited([handle]))
        return bool(ended)

    wait_until(renew_and_look, what="the job's own end")
    assert (ended[0].why, ended[0].code) == (ExitWhy.EXITED, 0)


def test_a_request_to_save_is_seen_by_a_job_that_goes_on(box: Box) -> None:
    handle = box.start(runs_for_s=LONG_S, ignores_signals=True)
    assert box.save_asked(handle) == 0
    for number in (5, 7):
        box.runtime.ask_save(handle, number)
        assert box.save_asked(handle) == number
    assert not box.notice_seen(handle)
    assert box.runtime.poll(handle) is None
    box.runtime.kill(handle, epoch=9)
    box.wait_exit(handle)


def test_a_notice_appears_and_can_be_withdrawn(box: Box) -> None:
    handle = box.start(runs_for_s=LONG_S)
    assert not box.notice_seen(handle)
    box.runtime.notice(handle, NOTICE)
    assert box.notice_seen(handle)
    box.runtime.notice(handle, None)
    assert not box.notice_seen(handle)


def test_a_restarted_agent_finds_the_living_and_the_ended(box: Box) -> None:
    ended = box.start(exit_code=4)
    box.wait_exit(ended)
    living = box.start(runs_for_s=LONG_S)
    box.restart_agent()
    assert box.runtime.recover() == [ended, living]
    assert [record.code for record in box.runtime.exited([ended, living])] == [4]
    wait_until(lambda: box.runtime.started(living) is not None, what="the living rank has started")
    box.runtime.kill(living, epoch=5)
    assert box.wait_exit(living).why is ExitWhy.KILLED


def test_what_ends_while_no_agent_lives_is_recovered(box: Box) -> None:
    handle = box.start(runs_for_s=0.3, exit_code=6)
    box.restart_agent()
    assert box.wait_exit(handle).code == 6


def test_a_log_is_read_by_logical_offsets(box: Box) -> None:
    handle = box.start(log="0123456789", head_bytes=4)
    box.wait_exit(handle)
    head = box.runtime.read_log(handle, 0, 100)
    assert (head.offset, head.data, head.end) == (0, b"0123", 11)
    rest = box.runtime.read_log(handle, head.next_offset, 5)
    assert (rest.offset, rest.data, rest.next_offset) == (4, b"45678", 9)
    assert box.runtime.read_log(handle, 11, 10).data == b""
    assert box.runtime.read_log(handle, 999, 10).offset == 11


def test_an_attempt_is_forgotten_only_after_its_end_and_only_once_matters(box: Box) -> None:
    handle = box.start(runs_for_s=LONG_S)
    with pytest.raises(RuntimeFault):
        box.runtime.forget(handle)
    box.runtime.kill(handle, epoch=5)
    box.wait_exit(handle)
    box.runtime.forget(handle)
    box.runtime.forget(handle)
    assert box.runtime.recover() == []


@pytest.mark.parametrize(
    "ask",
    [
        lambda runtime, handle: runtime.poll(handle),
        lambda runtime, handle: runtime.kill(handle, epoch=9),
        lambda runtime, handle: runtime.read_log(handle, 0, 1),
        lambda runtime, handle: runtime.usage(handle),
        lambda runtime, handle: runtime.inside(handle, ["true"], terminal=False),
    ],
)
def test_an_unknown_attempt_is_an_error(box: Box, ask: Callable[[Runtime, Handle], object]) -> None:
    with pytest.raises(UnknownAttempt):
        ask(box.runtime, Handle(RankKey("404", 1, 0), 1))


def test_nothing_is_run_inside_what_has_ended(box: Box) -> None:
    handle = box.start()
    box.wait_exit(handle)
    with pytest.raises(RuntimeFault):
        box.runtime.inside(handle, ["true"], terminal=False)


def test_job_files_are_known_before_the_start_and_differ_by_attempt(box: Box) -> None:
    one = box.runtime.job_files(RankKey("17", 1, 0))
    assert one == box.runtime.job_files(RankKey("17", 1, 0))
    assert one != box.runtime.job_files(RankKey("17", 2, 0))
    assert all(path.startswith("/") for path in one)


def test_the_ended_use_no_processes(box: Box) -> None:
    handle = box.start()
    box.wait_exit(handle)
    assert box.runtime.usage(handle).pids in (0, None)


def test_a_rank_that_joins_later_is_one_of_its_own_beside_what_left(box: Box) -> None:
    """A live resize: a node is left, and joined again by another rank of the same attempt."""
    left = box.start(runs_for_s=LONG_S, saves=True, log="first")
    box.runtime.notice(left, NOTICE)
    box.runtime.stop(left, epoch=5, signal=signal.SIGTERM, grace_s=60, term_s=5)
    record = box.wait_exit(left)
    joined = box.start(runs_for_s=LONG_S, saves=True, log="second", beside=left)
    assert not box.notice_seen(joined)
    assert box.runtime.job_files(joined.key) != box.runtime.job_files(left.key)
    assert (box.runtime.poll(left), box.runtime.poll(joined)) == (record, None)
    assert box.runtime.read_log(joined, 0, 100).data == b"second."
    box.runtime.forget(left)
    box.restart_agent()
    assert box.runtime.recover() == [joined]
    assert box.runtime.poll(joined) is None
    box.runtime.stop(joined, epoch=5, signal=signal.SIGTERM, grace_s=60, term_s=5)
    assert box.wait_exit(joined).code == 99


def test_a_rank_that_leaves_takes_nobody_of_its_attempt_along(box: Box) -> None:
    stays = box.start(runs_for_s=LONG_S, saves=True)
    leaves = box.start(runs_for_s=LONG_S, ignores_signals=True, beside=stays)
    box.runtime.notice(leaves, NOTICE)
    box.runtime.stop(leaves, epoch=5, signal=signal.SIGTERM, grace_s=0.3, term_s=0.1)
    assert (box.notice_seen(leaves), box.notice_seen(stays)) == (True, False)
    assert box.wait_exit(leaves).why is ExitWhy.STOPPED
    assert box.runtime.poll(stays) is None
    assert box.runtime.usage(stays).pids != 0


def test_a_rank_goes_on_to_leave_when_its_agent_dies(box: Box) -> None:
    stays = box.start(runs_for_s=LONG_S, ignores_signals=True)
    leaves = box.start(runs_for_s=LONG_S, ignores_signals=True, beside=stays)
    box.runtime.stop(leaves, epoch=5, signal=signal.SIGTERM, grace_s=0.6, term_s=0.1)
    box.restart_agent()
    assert set(box.runtime.recover()) == {stays, leaves}
    record = box.wait_exit(leaves)
    assert (record.why, record.noticed) == (ExitWhy.STOPPED, "stop")
    assert box.runtime.poll(stays) is None


@pytest.mark.parametrize("failures", [0, 3])
def test_who_joined_shows_how_often_its_workers_have_failed(box: Box, failures: int) -> None:
    handle = box.start(runs_for_s=LONG_S, worker_failures=failures)
    assert box.runtime.worker_failures(handle) == failures
    box.restart_agent()
    assert box.runtime.worker_failures(handle) == failures


def test_a_list_of_steps_is_read_when_it_has_changed_also_after_the_end(box: Box) -> None:
    silent, handle = box.start(), box.start(steps=r"dlq-steps\t1\t0\t0\n")
    assert box.runtime.steps(silent, "") is None
    found = box.runtime.steps(handle, "")
    assert found is not None
    assert found.content == b"dlq-steps\t1\t0\t0\n"
    assert box.runtime.steps(handle, found.mark) is None
    box.wait_exit(handle)
    box.restart_agent()
    assert box.runtime.steps(handle, "") == found
    assert box.runtime.steps(handle, found.mark) is None

"""One attempt of the `fake` runtime: the acts of the shim and the job, as events in time."""

import signal as signals
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Final, NamedTuple

from dlq_nodeagent.model.launch import LaunchPlan
from dlq_nodeagent.model.mistakes import LaunchRefused
from dlq_nodeagent.model.port import (
    ExitRecord,
    ExitWhy,
    Started,
    StartError,
    StopNotice,
)

COMMAND = "fake"

_HARMLESS: Final = frozenset({signals.SIGCONT, signals.SIGCHLD, signals.SIGURG, signals.SIGWINCH})


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeJob:
    """The behaviour of a job. In a command: `fake run_for=5 exit_code=3 ignores_signals=yes`."""

    run_for: float = 0.0
    """Seconds until it exits by itself."""
    exit_code: int = 0
    exit_signal: int = 0
    """The signal that ends it instead, when not 0."""
    ignores_signals: bool = False
    catches: str = ""
    """Whether it has a handler for the signal of its notice: yes or no; empty: nobody can see."""
    saves_for: float | None = None
    """Asked to leave, it saves for this many seconds and exits with `saved_code`; else it dies."""
    saved_code: int = 99
    start_error: str = ""
    """The reason why it cannot be started."""
    log: str = ""
    beat: str = ""
    steps: str = ""
    """Its list of steps: TAB and NEWLINE as \\t and \\n."""
    done: bool = False
    workers_done: bool = False
    failed_task: str = ""
    worker_failures: int = 0

    @classmethod
    def from_argv(cls, argv: tuple[str, ...]) -> "FakeJob":
        """Read the knobs of a `fake` command; any other command is a job that ends at once."""
        if argv[0] != COMMAND:
            return cls()
        kinds = {each.name: each.default for each in fields(cls)}
        knobs: dict[str, object] = {}
        for word in argv[1:]:
            name, equals, text = word.partition("=")
            if not equals or name not in kinds:
                raise LaunchRefused(f"no such knob of a fake job: {word!r}")
            knobs[name] = _read_knob(name, text, kinds[name])
        return cls(**knobs)  # type: ignore[arg-type]  # each was read as its field's kind


def _read_knob(name: str, text: str, default: object) -> object:
    try:
        if isinstance(default, bool):
            return {"yes": True, "no": False}[text]
        if isinstance(default, int):
            return int(text)
        return text if isinstance(default, str) else float(text)
    except (KeyError, ValueError) as error:
        raise LaunchRefused(f"bad value for {name}: {text!r}") from error


class _Event(NamedTuple):
    at_s: float
    order: int  # of two at the same instant the job's own act comes first
    act: str


class FakeAttempt:
    """Lives from `start_s` on CLOCK_BOOTTIME until `settle` finds that it has ended."""

    def __init__(self, plan: LaunchPlan, job: FakeJob, *, start_s: float, wall_s: float) -> None:
        self.plan = plan
        self.job = job
        self.record: ExitRecord | None = None
        self.notice: StopNotice | None = None
        self.save_number = 0
        self.highest_epoch = plan.epoch
        self.hold_s = plan.hold_s
        self._start_s = start_s
        self._wall_offset_s = wall_s - start_s
        self._exits_at_s = start_s + job.run_for
        self._exit_code, self._exit_signal = job.exit_code, job.exit_signal
        self._noticed: str | None = None
        self._noticed_ns: int | None = None
        self._hold_noticed = self._hold_termed = False
        self._notice_until_s = 0.0  # the time that the hold's notice has left the job
        self._stop_kill_s: float | None = None
        self._stop_term_s: float | None = None
        self._last_signal = 0
        self._frozen_s: float | None = None  # since when its time stands still
        self._unheard: list[int] = []  # signals that came meanwhile
        if job.start_error:
            error = StartError(stage="exec", errno=2, text=job.start_error)
            self._end(start_s, ExitWhy.START_ERROR, start_error=error)

    def started(self) -> Started | None:
        if self.job.start_error:
            return None
        return Started(
            shim_pid=0,
            shim_start_ticks=0,
            main_pid=0,
            main_start_ticks=0,
            boot_id="fake",
            started_boottime_ns=_ns(self._start_s),
            started_wall_ns=_ns(self._start_s + self._wall_offset_s),
        )

    def settle(self, now_s: float, contact_s: float) -> None:
        """Let everything happen that is due by now, in its order."""
        while self.record is None:
            due = [event for event in self._events(contact_s) if event.at_s <= now_s]
            if not due:
                return
            self._happen(min(due))

    def cpu_s(self, now_s: float) -> float:
        return now_s - self._start_s

    def freeze(self, now_s: float) -> None:
        """Only a kill ends it from now on."""
        if self._frozen_s is None:
            self._frozen_s = now_s

    def thaw(self, now_s: float) -> None:
        """It goes on, with all the time that it had left."""
        if self._frozen_s is not None:
            self._exits_at_s += now_s - self._frozen_s
            self._frozen_s, unheard, self._unheard = None, self._unheard, []
            for number in unheard:
                self.signal(number, now_s)

    @property
    def frozen(self) -> bool:
        return self._frozen_s is not None

    def signal(self, number: int, now_s: float) -> None:
        """The main process's reaction to a signal."""
        if self.frozen and number != signals.SIGKILL:
            self._unheard.append(number)
            return
        if self.record is not None or number in _HARMLESS or number == 0:
            return
        if number != signals.SIGKILL and self.job.ignores_signals:
            return
        if number != signals.SIGKILL and self.job.saves_for is not None:
            self._exits_at_s = min(self._exits_at_s, now_s + self.job.saves_for)
            self._exit_code, self._exit_signal = self.job.saved_code, 0
            return
        self._end(now_s, ExitWhy.EXITED, signal=number)

    def stop(self, number: int, grace_s: float, term_s: float, now_s: float) -> None:
        self._noticed, self._noticed_ns = "stop", _ns(now_s)
        self._stop_kill_s = now_s + grace_s
        self._stop_term_s = self._stop_kill_s - min(term_s, grace_s / 2)
        self._last_signal = number or self._last_signal
        self.signal(number, now_s)

    def kill(self, now_s: float) -> None:
        if self.record is None:
            self._end(now_s, ExitWhy.KILLED, signal=signals.SIGKILL)

    def noticed_at_s(self, contact_s: float) -> float:
        """When its hold tells it to leave."""
        return contact_s + self.hold_s - min(self.plan.grace_s, self.hold_s / 2)

    def _events(self, contact_s: float) -> Iterator[_Event]:
        if not self.frozen:
            yield _Event(self._exits_at_s, 0, "exit")
        if self._stop_kill_s is not None:
            if self._stop_term_s is not None:
                yield _Event(self._stop_term_s, 1, "stop_term")
            yield _Event(self._stop_kill_s, 2, "stop_kill")
        yield from self._hold_events(contact_s + self.hold_s)

    def _hold_events(self, kill_s: float) -> Iterator[_Event]:
        grace_s = min(self.plan.grace_s, self.hold_s / 2)
        if not self._hold_noticed:
            yield _Event(kill_s - grace_s, 3, "hold_notice")
        elif not self._hold_termed:
            yield _Event(kill_s - min(self.plan.term_s, grace_s / 2), 4, "hold_term")
        yield _Event(kill_s, 5, "hold_kill")

    def _happen(self, event: _Event) -> None:
        match event.act:
            case "exit":
                died_of = self._exit_signal or None
                code = None if died_of else self._exit_code
                self._end(event.at_s, ExitWhy.EXITED, code=code, signal=died_of)
            case "stop_term":
                self._stop_term_s = None
                self._press(event.at_s)
            case "hold_term":
                self._hold_termed = True
                self._press(event.at_s)
            case "hold_notice":
                self._give_hold_notice(event.at_s)
            case "stop_kill":
                self._end(event.at_s, ExitWhy.STOPPED, signal=signals.SIGKILL)
            case "hold_kill":
                self._end(event.at_s, ExitWhy.HOLD_EXPIRED, signal=signals.SIGKILL)

    def _press(self, at_s: float) -> None:
        if self._last_signal != signals.SIGTERM:
            self.signal(signals.SIGTERM, at_s)
        self._last_signal = signals.SIGTERM

    def withdraw_hold_notice(self) -> None:
        """The contact came back before the hold ran out. A leaving job does not turn back. Its end
        is put down to the notice until its grace is over.
        """
        if self._hold_noticed and self.record is None:
            self._hold_noticed = self._hold_termed = False
            if self._stop_kill_s is None:
                self.notice = None

    def _give_hold_notice(self, at_s: float) -> None:
        self._hold_noticed = True
        if self._stop_kill_s is not None:
            return  # it was asked to leave, and saves
        self._noticed, self._noticed_ns = "hold_expired", _ns(at_s)
        wall_s = at_s + self._wall_offset_s
        grace_s = min(self.plan.grace_s, self.hold_s / 2)
        self._notice_until_s = at_s + grace_s
        self.notice = StopNotice(
            kind="hold_expired",
            reason="the master has been silent for too long",
            deadline_s=wall_s + grace_s,
            notice_s=wall_s,
        )
        self._last_signal = self.plan.signal
        self.signal(self.plan.signal, at_s)

    def _end(
        self,
        at_s: float,
        why: ExitWhy,
        *,
        code: int | None = None,
        signal: int | None = None,
        start_error: StartError | None = None,
    ) -> None:
        started = self.started()
        withdrawn = self._noticed == "hold_expired" and not self._hold_noticed
        if withdrawn and at_s > self._notice_until_s:
            self._noticed = self._noticed_ns = None
        self.record = ExitRecord(
            key=self.plan.key,
            epoch=self.plan.epoch,
            why=why,
            code=code,
            signal=None if signal is None else int(signal),
            start_error=start_error,
            noticed=self._noticed,
            noticed_boottime_ns=self._noticed_ns,
            cpu_s=at_s - self._start_s,
            started_boottime_ns=started.started_boottime_ns if started else None,
            started_wall_ns=started.started_wall_ns if started else None,
            ended_boottime_ns=_ns(at_s),
            ended_wall_ns=_ns(at_s + self._wall_offset_s),
            boot_id="fake",
            log_bytes=len(self.job.log.encode()),
        )


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)

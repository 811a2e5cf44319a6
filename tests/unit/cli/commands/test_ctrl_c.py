"""What the presses of Ctrl-C mean to `dlq run`, one after the other."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import cast

import pytest

from dlq_cli import exit_codes
from dlq_cli.app import App
from dlq_cli.commands.jobs import run
from dlq_cli.commands.jobs.run import CtrlC
from dlq_common.errors import Unavailable

PATIENCE_S = 60.0


class SlowMaster:
    """Takes a signal at once and answers a cancel when it is told to."""

    def __init__(self) -> None:
        self.answering = threading.Event()
        self.fails = False

    def signal_each(self, _job_id: str, _name: str, *, all_ranks: bool) -> None:
        assert all_ranks

    def cancel(self, _job_id: str) -> None:
        assert self.answering.wait(PATIENCE_S)
        if self.fails:
            raise Unavailable("no master")


class Terminal:
    """One who presses at times of his own, and reads what is said."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self._said: list[str] = []
        self._news = threading.Condition()
        clock = SimpleNamespace(boottime_s=lambda: self.now_s)
        app = SimpleNamespace(clock=clock, say=self._say, connection=lambda: None)
        self.ctrl_c = CtrlC(cast(App, app), "7")

    def _say(self, text: str) -> None:
        with self._news:
            self._said.append(text)
            self._news.notify_all()

    def wait_for(self, text: str, *, times: int = 1) -> None:
        with self._news:
            assert self._news.wait_for(
                lambda: sum(text in line for line in self._said) >= times, PATIENCE_S
            ), self._said

    def press(self) -> None:
        if self.ctrl_c.press():
            raise KeyboardInterrupt

    def press_to_leave(self) -> None:
        """Twice suffices: the first of them may come before the answer is noted, or at all."""
        with self.ctrl_c.heard():
            self.press()
            self.press()


@pytest.fixture
def master(monkeypatch: pytest.MonkeyPatch) -> SlowMaster:
    slow = SlowMaster()
    monkeypatch.setattr(run, "Jobs", lambda _connection: slow)
    return slow


@pytest.fixture
def terminal(master: SlowMaster) -> Terminal:
    del master
    pressed = Terminal()
    pressed.press()
    pressed.wait_for("has got SIGINT")
    return pressed


def test_a_second_press_after_two_seconds_is_the_jobs_again(terminal: Terminal) -> None:
    terminal.now_s += run.TWICE_S + 0.1
    terminal.press()
    terminal.wait_for("has got SIGINT", times=2)


def test_nobody_hangs_up_before_the_cancel_is_answered(
    terminal: Terminal, master: SlowMaster
) -> None:
    terminal.press()
    terminal.press()
    terminal.wait_for("not answered yet")
    master.answering.set()
    terminal.wait_for("is being cancelled")


def test_a_press_after_the_answer_leaves(terminal: Terminal, master: SlowMaster) -> None:
    master.answering.set()
    terminal.press()
    terminal.wait_for("is being cancelled")
    with pytest.raises(exit_codes.Ended) as ended:
        terminal.press_to_leave()
    assert ended.value.code == exit_codes.INTERRUPTED
    terminal.wait_for("see how it ends: dlq status 7")


def test_who_insists_leaves_a_silent_master(terminal: Terminal, master: SlowMaster) -> None:
    terminal.press()
    with pytest.raises(exit_codes.Ended):
        terminal.press_to_leave()
    terminal.wait_for("whether job 7 was cancelled is not known")
    master.answering.set()


def test_a_cancel_that_failed_can_be_asked_for_again(
    terminal: Terminal, master: SlowMaster
) -> None:
    master.fails = True
    master.answering.set()
    terminal.press()
    terminal.wait_for("could not be cancelled: no master")
    master.fails = False
    terminal.press()
    terminal.wait_for("is being cancelled")

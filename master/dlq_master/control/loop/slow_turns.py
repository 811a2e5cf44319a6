"""Turns that took long. Each is kept for operators with its contents, and has a line in the log.

A turn has four phases. `decide`: the stimuli and their consequences. `plan`: the policy. `persist`:
the wait for the disk, in which the sockets are read. `publish`: the state for readers, answers,
commands, and questions to helpers.

A loaded master has many slow turns. So the log gets one line in LINE_EVERY_S at most; the next line
says how many were left out. The counts begin anew with every start.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from dlq_common.daemon.logs import get_logger
from dlq_master.control.loop.inbox import Envelope
from dlq_master.control.stimuli import Tick
from dlq_master.store.batch import Batch

_log = get_logger("master.loop")
PHASES = ("decide", "plan", "persist", "publish")
LINE_EVERY_S = 10.0
KEPT = 20  # of the slow turns, the last ones


class Laps:
    """The seconds of a turn's phases, by a clock that is asked at the end of each."""

    __slots__ = ("_since_s", "_tell_s", "spent_s")

    def __init__(self, tell_s: Callable[[], float]) -> None:
        self.spent_s = dict.fromkeys(PHASES, 0.0)
        self._tell_s = tell_s
        self._since_s = tell_s()

    def ended(self, phase: str) -> None:
        """The time since the last call was spent on this phase; one phase may come in parts."""
        now_s = self._tell_s()
        self.spent_s[phase] += now_s - self._since_s
        self._since_s = now_s

    @property
    def total_s(self) -> float:
        """The length of the turn so far."""
        return sum(self.spent_s.values())


class SlowTurn(NamedTuple):
    """A turn that was longer than the bound, with its contents."""

    began_s: float
    spent_s: Mapping[str, float]  # by phase
    stimuli: Mapping[str, int]  # by kind; a tick has its own name
    jobs: int  # rows that the turn wrote
    attempts: int
    nodes: int
    events: int
    commands: int

    @property
    def took_s(self) -> float:
        """All phases together."""
        return sum(self.spent_s.values())


class SlowTurns:
    """Hears of every turn; keeps and logs those above the bound. A bound of 0 is none."""

    def __init__(self, bound_s: float = 0.0) -> None:
        self.bound_s = bound_s
        self.count = 0  # since the start
        self.kept: deque[SlowTurn] = deque(maxlen=KEPT)
        self._left_out = 0
        self._next_line_s = 0.0

    def turned(
        self, laps: Laps, began_s: float, envelopes: Iterable[Envelope], batch: Batch
    ) -> None:
        """One turn is over."""
        if not self.bound_s or laps.total_s <= self.bound_s:
            return
        slow = SlowTurn(
            began_s=began_s,
            spent_s=laps.spent_s,
            stimuli=_kinds(envelopes),
            jobs=len(batch.jobs),
            attempts=len(batch.attempts),
            nodes=len(batch.nodes),
            events=len(batch.events),
            commands=len(batch.intentions),
        )
        self.count += 1
        self.kept.append(slow)
        self._say(slow)

    def _say(self, slow: SlowTurn) -> None:
        if slow.began_s < self._next_line_s:
            self._left_out += 1
            return
        self._next_line_s = slow.began_s + LINE_EVERY_S
        _log.info(
            "slow_turn",
            turn_ms=_ms(slow.took_s),
            **{f"{phase}_ms": _ms(seconds) for phase, seconds in slow.spent_s.items()},
            stimuli=dict(slow.stimuli),
            jobs=slow.jobs,
            attempts=slow.attempts,
            nodes=slow.nodes,
            events=slow.events,
            commands=slow.commands,
            left_out=self._left_out,
        )
        self._left_out = 0


def _kinds(envelopes: Iterable[Envelope]) -> Counter[str]:
    told = (envelope.stimulus for envelope in envelopes)
    return Counter(f"Tick.{it.name}" if isinstance(it, Tick) else type(it).__name__ for it in told)


def _ms(seconds: float) -> float:
    return round(seconds * 1000.0, 1)

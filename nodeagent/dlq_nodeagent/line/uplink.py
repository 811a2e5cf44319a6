"""The agent's side of the session: dial, say hello, send heartbeats, notice silence, redial."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from dlq_common.clock import Clock
from dlq_common.daemon.config import Seconds
from dlq_nodeagent.model.gpus import GpuHealth
from dlq_nodeagent.model.messages import (
    DiskSpace,
    FromAgent,
    Heartbeat,
    Hello,
    RankProgress,
    RankUse,
    Welcome,
)

# The part of the interval after which a heartbeat is sent, so that it arrives in time.
_EARLY = 0.9
_OPEN_TIMEOUT_S = 20.0
# Until the master's Welcome says otherwise.
_HEARTBEAT_S, _TTL_S = 5.0, 20.0


class UplinkTransport(Protocol):
    """One stream to the master at a time. Calls return at once, and a message may be lost."""

    def open(self) -> None:
        """Dial. Answered by `core.opened()`, or by `core.closed(why)`."""
        ...

    def send(self, message: FromAgent) -> None:
        """Send in order; dropped when no stream is open."""
        ...

    def close(self) -> None:
        """End the stream, also one being dialled. Not answered."""
        ...


class Contact(Protocol):
    """Stores the time of the last contact over restarts of the agent (shim/contact.py)."""

    def boottime_s(self) -> float | None:
        """Boottime of the last contact in this boot; None: there was none."""
        ...

    def renew(self, boottime_s: float) -> None:
        """Store the sending time of an answered heartbeat. An older time changes nothing."""
        ...


@dataclass(frozen=True, slots=True)
class ReconnectConfig:
    """Waits between tries to reach the master. The jitter of the master's welcome replaces ours."""

    first_try: Seconds = Seconds(0.5)  # wait before the first try
    jitter: Seconds = Seconds(15.0)  # a random part of this is added
    longest: Seconds = Seconds(15.0)  # the longest wait between tries


class Reconnect:
    """The wait before each try.

    After a lost session: one short wait, then one within the jitter, so that thousands of agents do
    not return in one second. Later waits double, up to a cap.
    """

    def __init__(self, settings: ReconnectConfig, rng: random.Random) -> None:
        self._settings = settings
        self._rng = rng
        self._failures = 0
        self.jitter_s: float = settings.jitter

    def succeeded(self) -> None:
        self._failures = 0

    def delay_s(self) -> float:
        self._failures = min(self._failures + 1, 32)
        if self._failures == 1:
            longest_s = min(self._settings.first_try, self.jitter_s)
        else:
            doubled_s = max(self.jitter_s, self._settings.first_try) * 2.0 ** (self._failures - 2)
            longest_s = min(doubled_s, self._settings.longest)
        return self._rng.uniform(0.0, longest_s)


class LinkState(StrEnum):
    """The state of the session."""

    DOWN = "down"
    OPENING = "opening"
    GREETED = "greeted"  # Hello sent
    UP = "up"  # Welcome received


class Uplink:
    """Owns the state of the stream and the time of the last contact; knows nothing of ranks.

    Only an answered heartbeat is contact, counted from its sending. An open socket or a Welcome is
    not.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        transport: UplinkTransport,
        contact: Contact,
        rng: random.Random,
        reconnect: ReconnectConfig,
        hello: Callable[[], Hello],
        progress: Callable[[], tuple[RankProgress, ...]],
        hold_revision: Callable[[], int],
    ) -> None:
        self._clock = clock
        self._transport = transport
        self._contact = contact
        self._hello = hello
        self._progress = progress
        self._hold_revision = hold_revision
        self._said_revision = 0
        self._reconnect = Reconnect(reconnect, rng)
        self.state = LinkState.DOWN
        self.health: Callable[[bool], tuple[GpuHealth, ...] | None] = lambda first: None
        """The GPUs' health for a heartbeat; the argument is true for the first of a session."""
        self.rank_uses: Callable[[], tuple[RankUse, ...]] = tuple
        """The uses of running ranks that are due; empty in between."""
        self.disk: Callable[[bool], DiskSpace | None] = lambda first: None
        """The same for the disk."""
        self._since_s = 0.0  # when the state was entered
        self._dial_at_s = clock.boottime_s()
        self._heartbeat_s = _HEARTBEAT_S
        self._ttl_s = _TTL_S
        self._beat_at_s = 0.0
        self._answered_s = 0.0
        self._sequence = 0
        self._sent: dict[int, float] = {}
        self.in_contact = False

    @property
    def up(self) -> bool:
        return self.state is LinkState.UP

    def silence_s(self) -> float:
        """Seconds since the last contact; infinite if there was none since the host booted."""
        last_s = self._contact.boottime_s()
        return float("inf") if last_s is None else self._clock.boottime_s() - last_s

    def tick(self) -> None:
        """Do the due work: dial, send a heartbeat, or give up a stream that does not answer."""
        now_s = self._clock.boottime_s()
        match self.state:
            case LinkState.DOWN if now_s >= self._dial_at_s:
                self._enter(LinkState.OPENING)
                self._transport.open()
            case LinkState.OPENING | LinkState.GREETED:
                if now_s - self._since_s >= _OPEN_TIMEOUT_S:
                    self.drop()
            case LinkState.UP:
                if now_s - self._answered_s >= self._ttl_s:
                    self.drop()
                elif now_s >= self._beat_at_s or self._has_new_revision():
                    self._beat(now_s)

    def next_due_s(self) -> float:
        """Boottime at which `tick` has work if nothing arrives before."""
        match self.state:
            case LinkState.DOWN:
                return self._dial_at_s
            case LinkState.UP:
                return min(self._beat_at_s, self._answered_s + self._ttl_s)
            case _:
                return self._since_s + _OPEN_TIMEOUT_S

    def opened(self) -> None:
        if self.state is not LinkState.OPENING:
            return
        self._enter(LinkState.GREETED)
        self._transport.send(self._hello())

    def closed(self) -> None:
        if self.state is not LinkState.DOWN:
            self._wait()

    def drop(self) -> None:
        self._transport.close()
        self._wait()

    def welcomed(self, welcome: Welcome) -> None:
        """The session is up. Send a heartbeat at once: only its answer is contact."""
        self._heartbeat_s = welcome.heartbeat_s
        self._ttl_s = welcome.ttl_s
        self._reconnect.jitter_s = welcome.reconnect_jitter_s
        self._reconnect.succeeded()
        self._enter(LinkState.UP)
        self._answered_s = self._clock.boottime_s()
        self._sequence = 0
        self._sent.clear()
        self._beat(self._answered_s)

    def heartbeat_answered(self, sequence: int) -> None:
        """Note the contact, at the time when that heartbeat was sent."""
        sent_s = self._sent.get(sequence)
        if sent_s is None or not self.up:
            return
        self._answered_s = self._clock.boottime_s()
        self.in_contact = True
        self._contact.renew(sent_s)
        self._sent = {number: at_s for number, at_s in self._sent.items() if number > sequence}

    def send(self, message: FromAgent) -> None:
        """Send in the session; dropped without one (Hello repeats everything)."""
        if self.up:
            self._transport.send(message)

    def _has_new_revision(self) -> bool:
        """Whether a hold revision is in force that the master does not know: it is sent at once."""
        return self._hold_revision() not in (0, self._said_revision)

    def _beat(self, now_s: float) -> None:
        self._sequence += 1
        self._sent[self._sequence] = now_s
        self._beat_at_s = now_s + _EARLY * self._heartbeat_s
        self._said_revision = self._hold_revision()
        self._transport.send(
            Heartbeat(
                sequence=self._sequence,
                progress=self._progress(),
                hold_revision=self._said_revision,
                health=self.health(self._sequence == 1),
                disk=self.disk(self._sequence == 1),
                rank_uses=self.rank_uses(),
            )
        )

    def _wait(self) -> None:
        self._enter(LinkState.DOWN)
        self.in_contact = False
        self._dial_at_s = self._clock.boottime_s() + self._reconnect.delay_s()

    def _enter(self, state: LinkState) -> None:
        self.state = state
        self._since_s = self._clock.boottime_s()

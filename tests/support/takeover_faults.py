"""What befalls a leading master or its database, and how long it takes until a master leads again.

Each fault ends as it began: one master leads, the other one stands by, and all servers run.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from support.held_lines import BOTH, TO_AGENT, TO_MASTER
from support.lined_pair import LinedPair
from support.pair_daemons import MASTERS
from support.postgres_site import PostgresServer
from support.rotating_site import RotatingSite
from support.waiting import wait_until

TURNS_MISSED: Final = 3
LOST: Final = "the database lost commits"


class Takeovers:
    """Ends one leader after the other, and writes down how long the next one took."""

    def __init__(self, daemons: LinedPair, site: RotatingSite, chance: random.Random) -> None:
        self._daemons, self._site, self._chance = daemons, site, chance
        self.took_s: dict[str, list[float]] = {}
        self._befallen = 0
        self.refused = 0  # promotions that both masters have refused
        self.leader, self.other = MASTERS

    def befall(self, fault: str) -> None:
        """Let it happen, wait for the next leader, and mend everything."""
        self._befallen += 1
        try:
            FAULTS[fault](self)
        except BaseException as error:
            error.add_note(f"takeover {self._befallen}, {fault}, of {self.leader}")
            error.add_note(self._site.told())
            raise

    # --- faults of the leader -----------------------------------------------------------------

    def killed(self) -> None:
        """Its process dies."""
        began_s = time.monotonic()
        self._daemons.kill(self.leader)
        self._taken("killed", began_s)
        self._stand_by_again()

    def stopped(self) -> None:
        """Its process stands still (SIGSTOP), perhaps within a transaction."""
        began_s = time.monotonic()
        self._daemons.freeze(self.leader)
        self._taken("stopped", began_s)
        self._daemons.thaw(self.leader)
        self._daemons.wait_for_failure(self.leader)
        self._stand_by_again()

    def left(self) -> None:
        """It is told to leave, and hands over."""
        leaving = threading.Thread(target=lambda: self._daemons.stop(self.leader))
        began_s = time.monotonic()
        leaving.start()
        self._taken("left", began_s)
        leaving.join()
        self._stand_by_again()

    def held(self) -> None:
        """Its lines to the database are open, and in one or both directions nothing comes
        through.
        """
        directions = (BOTH, frozenset({TO_MASTER}), frozenset({TO_AGENT}))
        began_s = time.monotonic()
        self._daemons.hold(self.leader, self._chance.choice(directions))
        self._taken("half_open", began_s)
        self._daemons.wait_for_failure(self.leader)
        self._daemons.heal(self.leader)
        self._stand_by_again()

    # --- faults of the database ---------------------------------------------------------------

    def failed_over(self) -> None:
        """The primary dies, and a server that has all commits is promoted."""
        began_s = time.monotonic()
        self._site.kill_primary()
        lost = self._site.promote_best()
        self._taken("failover", began_s)
        self._daemons.wait_for_failure(self.leader)
        self._site.come_back(lost)
        self._stand_by_again()

    def wait_ended(self) -> None:
        """A commit waits for the other servers, and its wait is cancelled or its backend ended. It
        stays on the primary, and nobody may be told that it is safe.
        """
        how = self._chance.choice(("cancel", "terminate"))
        for server in self._site.others:
            server.pause()
        try:
            wait_until(lambda: self._site.end_wait(how), what="a commit waits, and its wait ends")
            began_s = time.monotonic()
        finally:
            for server in self._site.others:
                server.resume()
        self._taken("wait_ended", began_s)
        self._daemons.wait_for_failure(self.leader)
        self._stand_by_again()

    def lagging(self) -> None:
        """A server that misses acknowledged turns is promoted. Both masters refuse it, and nobody
        leads until the right one is promoted.
        """
        behind = self._site.others.pop()
        behind.kill()
        missed = self._site.turn() + TURNS_MISSED
        wait_until(lambda: self._site.turn() > missed, what="turns that it misses")
        # A master cannot miss a turn that it has never seen: its try waits for a second server.
        wait_until(
            lambda: self._daemons.turn_seen(self.other) > missed, what="the standby has read them"
        )
        self._site.kill_primary()
        self._daemons.wait_for_failure(self.leader)
        self._daemons.start_standby(self.leader)
        behind.start()
        epoch = self._site.epoch(behind)
        behind.promote()
        for name in MASTERS:
            wait_until(lambda: self._refuses(name), what=f"{name} refuses it")  # noqa: B023
        assert self._site.epoch(behind) == epoch, "a master has led on it"
        behind.kill()
        self._promote_in_its_place(behind)
        self.refused += 1

    def full(self) -> None:
        """The primary's disk has no room for its log. It is given some, or another one is
        promoted.
        """
        primary, mended = self._site.primary, self._chance.random() < 0.5
        began_s = time.monotonic()
        self._site.fill(primary)
        self._daemons.wait_for_failure(self.leader)
        primary.kill()
        lost = None
        if mended:
            self._site.widen(primary)
            primary.start()
        else:
            lost = self._site.promote_best()
        self._taken("full_disk", began_s)
        if lost is not None:
            self._site.come_back(lost)
        self._stand_by_again()

    # --- helpers, in order of use -------------------------------------------------------------

    def _taken(self, fault: str, began_s: float) -> None:
        ended_s = self._daemons.answers(self.other)
        self.took_s.setdefault(fault, []).append(ended_s - began_s)

    def _stand_by_again(self) -> None:
        """The former leader comes back as the standby."""
        self._daemons.start_standby(self.leader)
        self.leader, self.other = self.other, self.leader

    def _refuses(self, name: str) -> bool:
        assert not self._daemons.leads(name), f"{name} leads on a database that lost commits"
        return self._daemons.has_said(name, LOST)

    def _promote_in_its_place(self, behind: PostgresServer) -> None:
        lost = self._site.promote_best()
        self._site.come_back(behind)  # until then no commit is confirmed
        began_s = time.monotonic()
        leader = self._daemons.first_to_lead(*MASTERS)
        self.leader, self.other = leader, next(name for name in MASTERS if name != leader)
        ended_s = self._daemons.answers(leader)
        self.took_s.setdefault("lagging", []).append(ended_s - began_s)
        self._site.come_back(lost)


FAULTS: Final[Mapping[str, Callable[[Takeovers], None]]] = {
    "killed": Takeovers.killed,
    "stopped": Takeovers.stopped,
    "left": Takeovers.left,
    "half_open": Takeovers.held,
    "failover": Takeovers.failed_over,
    "wait_ended": Takeovers.wait_ended,
    "lagging": Takeovers.lagging,
    "full_disk": Takeovers.full,
}

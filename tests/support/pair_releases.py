"""Two masters on one PostgreSQL, each of which changes between a former release and this tree."""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping
from pathlib import Path

from support.pair_daemons import MASTERS, PairDaemons
from support.postgres_site import PostgresServer
from support.two_releases import PRESENT, Releases
from support.waiting import wait_until

START_S = 120.0


class PairReleases(Releases, PairDaemons):
    """This tree makes the database, and all daemons begin with it."""

    def __init__(
        self,
        root: Path,
        server: PostgresServer,
        former: Mapping[str, Path],
        agents: tuple[str, ...] = ("n1", "n2"),
    ) -> None:
        PairDaemons.__init__(self, root, server, agents)
        self.run_releases(former, PRESENT, (*MASTERS, *agents))

    def wait_for(self, name: str) -> None:
        """Until a master leads, or stands by another one; or an agent has been welcomed."""
        if name in MASTERS:
            wait_until(
                lambda: self._at_work(name), what=f"{name} leads or stands by", timeout_s=START_S
            )
        else:
            super().wait_for(name)

    def _at_work(self, name: str) -> bool:
        led = any(self.leads(one) for one in MASTERS if one in self._running and one != name)
        return self.leads(name) or (led and self._said(name, b"stands_by"))

    def change_all(self, release: str, chance: random.Random) -> None:
        """Each daemon to that release, in any order. One master is there while the other changes:
        the leader goes first in one half of the cases.
        """
        names, pause = [*MASTERS, *self.agents], threading.Event()
        chance.shuffle(names)
        for name in names:
            self.change(name, release, at_once=chance.random() < 0.25)
            self.wait_for(name)
            pause.wait(chance.uniform(0.0, 0.5))

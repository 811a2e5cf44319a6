"""Two masters on one PostgreSQL: one leads and one stands by; agents and clients know both."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from dlq_client.line.connection import Connection
from dlq_client.queues import Queues
from dlq_master.rpc.people.shared_authority import make_pair_key
from support.harness import BIN, Daemons
from support.ports import free_ports
from support.postgres_daemons import PostgresDaemons
from support.postgres_site import PostgresServer
from support.waiting import wait_until

MASTERS = ("master", "master2")
TAKEN_S = 60.0


class PairDaemons(PostgresDaemons):
    """`master` leads first. The second one has the CA's files, and a state directory of its own."""

    def __init__(
        self,
        root: Path,
        server: PostgresServer,
        agents: tuple[str, ...] = ("n1",),
        *,
        asynchronous: bool = True,
        dsn: str = "",
    ) -> None:
        self._second = [f"127.0.0.1:{port}" for port in free_ports(2)]
        super().__init__(root, server, agents, asynchronous=asynchronous)
        if dsn:
            self._settings = self._settings.replace(server.dsn, dsn)
        self.addresses = dict(zip(MASTERS, (self.api, self._second[0]), strict=True))
        self.both = f"{self.api},{self._second[0]}"
        self._settings += f'[leader]\nmasters = ["{self.api}", "{self._second[0]}"]\n'
        self.dialled = self.both
        self.kills["master2"] = 0

    def _make_master(self) -> None:
        super()._make_master()
        second = self.root / "master2"
        second.mkdir(mode=0o700)
        make_pair_key(self.root / "master")
        for name in ("ca.key", "ca.crt", "pair.key"):
            shutil.copy2(self.root / "master" / name, second / name)
        text = (self.root / "master.toml").read_text()
        text = text.replace(self.api, self._second[0], 1).replace(self.join, self._second[1], 1)
        text = text.replace(f'state_dir = "{self.root / "master"}"', f'state_dir = "{second}"', 1)
        (self.root / "master2.toml").write_text(text)

    def _command(self, name: str) -> list[str]:
        if name == "master2":
            return [str(BIN / "dlq-master"), "run", "--config", str(self.root / "master2.toml")]
        return super()._command(name)

    def start_standby(self, name: str = "master2") -> None:
        """Start the other master, and wait until it stands by."""
        self.start(name)
        wait_until(lambda: self._said(name, b"stands_by"), what=f"{name} stands by")

    def connect(self, address: str = "", *, patience_s: float = 60.0) -> Connection:
        return Daemons.connect(self, address or self.both, patience_s=patience_s)

    def leads(self, name: str) -> bool:
        """Whether a master has said that it serves, in this life."""
        return self._said(name, b"master_serving")

    def taken_over_s(self, name: str) -> float:
        """Wait until this master serves; the time from now to its first answer."""
        began_s = time.monotonic()
        with self.connect(self.addresses[name], patience_s=TAKEN_S) as line:
            Queues(line).cluster()
        return time.monotonic() - began_s

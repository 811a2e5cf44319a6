"""Two masters that each reach three database servers over lines of their own."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from dlq_client.queues import Queues
from dlq_master.leader.turn_seen import NAME
from support.harness import Daemons
from support.held_lines import HeldLine
from support.pair_daemons import MASTERS, TAKEN_S, PairDaemons
from support.postgres_site import DATABASE, PASSWORD, USER, PostgresServer
from support.waiting import wait_until


class LinedPair(PairDaemons):
    """`lines[name]` are those of one master, in the order of the servers."""

    def __init__(
        self, root: Path, servers: Sequence[PostgresServer], agents: tuple[str, ...]
    ) -> None:
        self.lines = {
            name: [HeldLine(f"127.0.0.1:{server.port}") for server in servers] for name in MASTERS
        }
        super().__init__(root, servers[0], agents, asynchronous=False)
        secret = root / "database-password"
        secret.touch(mode=0o600)
        secret.write_text(PASSWORD)
        self._settings = self._settings.replace(
            f'dsn = "{servers[0].dsn}"\n',
            f'dsn = "{self._dsn_of("master")}"\npassword_file = "{secret}"\ntls = "disable"\n',
        )

    def hold(self, name: str, directions: frozenset[str]) -> None:
        """The database's lines of one master are open, and nothing comes through."""
        for line in self.lines[name]:
            line.hold(directions)

    def heal(self, name: str) -> None:
        """Everything comes through."""
        for line in self.lines[name]:
            line.heal()

    def has_said(self, name: str, word: str) -> bool:
        """Whether this master has written it, in this life."""
        return self._said(name, word.encode())

    def turn_seen(self, name: str) -> int:
        """The last turn that this master knows."""
        return int((self.root / name / NAME).read_bytes().split()[0])

    def first_to_lead(self, *names: str) -> str:
        """Wait until one of these masters serves."""
        return (
            wait_until(
                lambda: next((name for name in names if self.leads(name)), None),
                what=f"one of {names} leads",
                timeout_s=TAKEN_S,
            )
            or names[0]
        )

    def answers(self, name: str) -> float:
        """The moment at which this master has answered a client."""
        with self.connect(self.addresses[name], patience_s=TAKEN_S) as line:
            Queues(line).cluster()
        return time.monotonic()

    @contextmanager
    def up(self) -> Iterator[Daemons]:
        with ExitStack() as lines:
            for line in (line for lines_ in self.lines.values() for line in lines_):
                lines.enter_context(line.running())
            with super().up() as up:
                yield up

    def _dsn_of(self, name: str) -> str:
        ports = ",".join(line.address.rpartition(":")[2] for line in self.lines[name])
        hosts = ",".join(["127.0.0.1"] * len(self.lines[name]))
        return f"host={hosts} port={ports} user={USER} dbname={DATABASE}"

    def _make_master(self) -> None:
        super()._make_master()
        second = self.root / "master2.toml"
        text = second.read_text()
        second.write_text(text.replace(self._dsn_of("master"), self._dsn_of("master2"), 1))

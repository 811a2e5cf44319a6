"""A cluster of daemons whose master keeps its rows in PostgreSQL."""

from pathlib import Path

from dlq_master.app import main as master
from support.harness import Daemons
from support.postgres_site import PostgresServer


class PostgresDaemons(Daemons):
    """A master that was made with SQLite, as every master is, and then moved to a server."""

    def __init__(
        self,
        root: Path,
        server: PostgresServer,
        agents: tuple[str, ...] = ("n1",),
        *,
        asynchronous: bool = True,
        settings: str = "",
    ) -> None:
        store = (
            f'[store]\nbackend = "postgresql"\ndsn = "{server.dsn}"\n'
            f"allow_asynchronous = {str(asynchronous).lower()}\n"
        )
        super().__init__(root, agents, settings=f"{settings}{store}")

    def _make_master(self) -> None:
        super()._make_master()
        self.master("copy-store", "--to", "postgresql")

    def master(self, *words: str) -> str:
        """The output of a command of dlq-master."""
        command, *rest = words
        return self._run(master, command, "--config", str(self.root / "master.toml"), *rest)

"""Secrets of a living cluster are looked for where they must not be.

Each is drawn anew, used as people use it, and then looked for in all files, in the database, in
copies, in logs, in command lines of all processes, in the metrics and in a dump. It may be in its
own file. The environment of a job is also in the database and in the agent's records, because both
must start the job again. `make prove ONLY=canaries` runs this.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
import subprocess
import tarfile
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import click
import pytest

from dlq.v1 import job_pb2
from dlq_client.jobs import Jobs
from support.canaries import files_with, forms_of
from support.harness import BIN, Daemons
from support.ports import free_ports
from support.postgres_daemons import PostgresDaemons
from support.postgres_site import (
    PASSWORD,
    PostgresServer,
    PostgresSite,
    need_postgres,
    postgres_site,
)
from support.proofs import proved
from support.waiting import wait_until

PATIENCE_S = 120.0
LOOK_S = 0.02
VARIABLE = "WANDB_API_KEY"
# Where a secret may be, as patterns of paths below the root of a cluster.
OWN: Mapping[str, tuple[str, ...]] = {
    "join token": (),
    "variable of a job": (
        r"master/dlq\.", r"copies/[^/]+/dlq\.db", r"n1/(journal|attempts|ranks)", r"dump\.sql",
        r"postgres/",
    ),
    "key of the CA": (r"master\d?/ca\.key",),
    "key of a node": (r"n1/.*identity\.key",),
    "key of a user": (r"home/identity\.key",),
    "passphrase": (r"[\w.]*passphrase",),
    "password of the database": (r"postgres/password", r"database\.password"),
}  # fmt: skip


@dataclass
class Found:
    """The secrets of one cluster, and each place in which one was found and must not be."""

    root: Path
    postgres: Path | None = None  # of the servers' files, which lie elsewhere
    words: dict[str, list[str]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    own: set[str] = field(default_factory=set)  # kinds that are where they must be

    def plant(self, kind: str, secret: str) -> str:
        self.words.setdefault(kind, []).append(secret)
        return secret

    def plant_key(self, kind: str, path: Path) -> None:
        """A line of the middle of a private key."""
        self.plant(kind, path.read_text().splitlines()[2])

    def look_at_files(self) -> int:
        """All files below the root, and those of the servers; so many they are."""
        roots = {self.root: ""} | ({self.postgres: "postgres/"} if self.postgres else {})
        for kind, planted in self.words.items():
            for secret in planted:
                for path in files_with(secret, roots):
                    root = next(one for one in roots if Path(path).is_relative_to(one))
                    name = roots[root] + str(Path(path).relative_to(root))
                    if not any(re.match(own, name) for own in OWN[kind]):
                        self.wrong.append(f"{kind} in {name}")
                        continue
                    self.own.add(kind)
                    if Path(path).stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                        self._look_at_folders(kind, Path(path))
        return sum(1 for root in roots for path in root.rglob("*") if path.is_file())

    def look_at_text(self, what: str, text: str) -> None:
        for kind, planted in self.words.items():
            if any(form in text for secret in planted for form in forms_of(secret)):
                self.wrong.append(f"{kind} in {what}")

    def _look_at_folders(self, kind: str, path: Path) -> None:
        """A file that others may read lies in a directory that they may not enter."""
        tops, above = (self.root, self.postgres), path
        while above not in tops:
            above = above.parent
            if not above.stat().st_mode & (stat.S_IXGRP | stat.S_IXOTH):
                return
        self.wrong.append(f"others may read the {kind} in {path.relative_to(self.root)}")


class CommandLines(threading.Thread):
    """Reads the command lines of all processes, again and again."""

    def __init__(self, found: Found) -> None:
        super().__init__(name="command-lines")
        self._found, self._over = found, threading.Event()
        self.seen: set[bytes] = set()
        self.looks = 0

    def run(self) -> None:
        while not self._over.wait(LOOK_S):
            self.looks += 1
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    self.seen.add(path.read_bytes())

    def end(self) -> None:
        """Look no more: the search of files names the secrets itself."""
        if not self._over.is_set():
            self._over.set()
            self.join()

    def judge(self) -> None:
        for line in self.seen:
            self._found.look_at_text("a command line", line.decode(errors="replace"))


@contextmanager
def watching(daemons: Daemons, found: Found) -> Iterator[CommandLines]:
    """The cluster is up, and all command lines are read."""
    lines = CommandLines(found)
    lines.start()
    try:
        with daemons.up():
            yield lines
    finally:
        lines.end()


def typed(daemons: Daemons, *words: str, given: str = "", **env: str) -> str:
    """The output of a command in a process of its own, as people type it."""
    done = subprocess.run(
        [BIN / words[0], *words[1:]],
        env=daemons.environment() | env, cwd=daemons.root, input=given,
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


class WatchedDaemons(Daemons):
    """Daemons with a port of metrics, whose nodes join by a token on standard input."""

    found: Found
    metrics: str

    def start(self, name: str, **env: str) -> None:
        more = {"DLQ_LISTEN__METRICS": self.metrics} if name == "master" else {}
        super().start(name, **more, **env)

    def _run(self, command: click.Command, *arguments: str) -> str:
        if arguments[0] != "join":
            return super()._run(command, *arguments)
        token = self.found.plant("join token", arguments[1])
        return typed(self, "dlq-nodeagent", "join", "-", *arguments[2:], given=f"{token}\n")


class WatchedPair(WatchedDaemons, PostgresDaemons):
    """The same with the rows in PostgreSQL."""


def work(daemons: Daemons, found: Found) -> None:
    """A job that runs, one that has failed; daemons that die, and take all over."""
    value = found.plant("variable of a job", f"canary{secrets.token_hex(16)}")
    typed(daemons, "dlq", "submit", "-G", "1", "--env", VARIABLE, "--", "sleep", "1000",
          **{VARIABLE: value})  # fmt: skip
    typed(daemons, "dlq", "submit", "-G", "1", "--env", VARIABLE, "--", "sh", "-c",
          "echo it fails >&2; exit 3", **{VARIABLE: value})  # fmt: skip
    with daemons.connect() as line:
        jobs = Jobs(line)
        running = job_pb2.ATTEMPT_STATE_RUNNING
        wait_until(lambda: jobs.get("1").job.attempt_state == running, what="it runs")
        wait_until(lambda: jobs.get("2").job.HasField("end_time"), what="it fails")
    for name in ("master", "n1"):
        daemons.kill(name)
        daemons.start(name)
        daemons.wait_for(name)
    with daemons.connect() as line:
        wait_until(lambda: Jobs(line).get("1").job.attempt_state == running, what="it runs on")
    state = daemons.root / "master"
    found.plant_key("key of the CA", state / "ca.key")
    found.plant_key("key of a node", next((daemons.root / "n1").rglob("identity.key")))
    found.plant_key("key of a user", daemons.root / "home" / "identity.key")


def look(daemons: Daemons, found: Found, metrics: str) -> None:
    """Everything that people are shown."""
    for words in (
        ("status", "--json"), ("show", "1"), ("show", "2"), ("events", "1"), ("why", "1"),
        ("nodes", "-R"), ("doctor", "--json"), ("history", "--json"),
    ):  # fmt: skip
        done = daemons.dlq(*words)
        found.look_at_text(f"dlq {' '.join(words)}", done.out + done.err)
    with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=PATIENCE_S) as page:
        found.look_at_text("the metrics", page.read().decode())
    dump = daemons.root / "dump"
    typed(daemons, "dlq", "debug-dump", "-o", str(dump / "it.tar.gz"), "--job", "1")
    with tarfile.open(dump / "it.tar.gz") as archive:
        archive.extractall(dump, filter="data")


def judge(campaign: str, found: Found, lines: CommandLines, files: int) -> None:
    lines.judge()
    assert found.own == found.words.keys() - {"join token"}, (
        "the search does not find what is there"
    )
    assert sorted({*found.wrong}) == []
    proved(
        campaign,
        secrets=sum(map(len, found.words.values())),
        kinds=len(found.words),
        files=files,
        command_lines=len(lines.seen),
        found=0,
    )


def passphrase(found: Found, root: Path) -> Path:
    path = root / "passphrase"
    path.touch(mode=0o600)
    path.write_text(found.plant("passphrase", secrets.token_hex(16)))
    return path


@pytest.mark.torture
def test_no_secret_is_found_where_it_must_not_be(tmp_path: Path) -> None:
    found = Found(tmp_path)
    (tmp_path / "dump").mkdir()
    metrics = f"127.0.0.1:{free_ports(1)[0]}"
    secret = passphrase(found, tmp_path)
    settings = f'[backup]\nca_key = "encrypted"\npassphrase_file = "{secret}"\n'
    daemons = WatchedDaemons(tmp_path, ("n1",), settings=settings)
    daemons.found, daemons.metrics = found, metrics
    with watching(daemons, found) as lines:
        work(daemons, found)
        config = str(tmp_path / "master.toml")
        typed(daemons, "dlq-master", "backup", "--config", config, "--to", str(tmp_path / "copies"))
        look(daemons, found, metrics)
        lines.end()
        files = found.look_at_files()
        daemons.said("cancel", "1")
    judge("secrets", found, lines, files)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[PostgresSite]:
    need_postgres()
    with postgres_site() as made:
        yield made


@pytest.mark.torture
def test_no_secret_of_a_pair_is_found_where_it_must_not_be(
    tmp_path: Path, site: PostgresSite
) -> None:
    found, server = Found(tmp_path, site.home), site.primary
    (tmp_path / "dump").mkdir()
    password = tmp_path / "database.password"
    password.touch(mode=0o600)
    password.write_text(found.plant("password of the database", PASSWORD))
    metrics = f"127.0.0.1:{free_ports(1)[0]}"
    daemons = WatchedPair(tmp_path, server, ("n1",))
    daemons._settings = daemons._settings.replace(
        f'dsn = "{server.dsn}"',
        f'dsn = "{server.tcp_dsn}"\npassword_file = "{password}"\ntls = "disable"',
    )
    daemons.found, daemons.metrics = found, metrics
    with watching(daemons, found) as lines:
        work(daemons, found)
        export(daemons, found)
        dump(server, tmp_path / "dump.sql")
        look(daemons, found, metrics)
        lines.end()
        files = found.look_at_files()
        found.look_at_text("the log of PostgreSQL", server.log.read_text(errors="replace"))
        daemons.said("cancel", "1")
    judge("secrets of a pair", found, lines, files)


def export(daemons: Daemons, found: Found) -> None:
    """The CA and the settings go to a second host."""
    root, secret = daemons.root, passphrase(found, daemons.root)
    pair, config = str(root / "pair.dlq"), str(root / "master.toml")
    given = ("--passphrase-file", str(secret))
    typed(daemons, "dlq-master", "pair", "export", "--config", config, *given, "--to", pair)
    api, join = (f"127.0.0.1:{port}" for port in free_ports(2))
    places = ("--listen", api, "--join-listen", join, "--advertise", api)
    typed(daemons, "dlq-master", "pair", "join", pair, "--config", str(root / "master2.toml"),
          *given, "--state-dir", str(root / "master2"), *places)  # fmt: skip


def dump(server: PostgresServer, to: Path) -> None:
    """All rows as text, as a copy of the database has them."""
    done = subprocess.run(
        [server._bin / "pg_dump", "--inserts", "--dbname", server.dsn, "--file", to],
        capture_output=True, text=True, check=False, env={"PATH": os.defpath},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    to.chmod(0o600)

"""Former releases beside this tree: a cluster whose daemons change from one to another and back.

`tests/data/former_releases.json` names commits. `last` is the last release: this tree takes over
its state directories. `near` is a later one, whose rows have the same fields as those of this tree,
so that it can also take over from this tree. `paired` is the same for two masters on PostgreSQL,
which the others do not have. `unrelayed` forwards ports through the master alone,
and `first-relay` through a relay that could read the bytes. The wheel of each is built from the
history of this repository, once, and unpacked below `build/releases`. All daemons run on the
libraries of the development environment.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import click

from support.harness import Daemons
from support.wheels import ROOT, run

NAMED = ROOT / "tests/data/former_releases.json"
KEPT = ROOT / "build/releases"
LAST, NEAR, PRESENT = "last", "near", "present"
PAIRED = "paired"
UNRELAYED, FIRST_RELAY = "unrelayed", "first-relay"
# Says in the log of a daemon which files it runs, so that a run cannot try one release alone.
SAYS = "runs the release in"
LAUNCH = """
import sys
from dlq_{kind} import app
print("{says}", app.__file__, file=sys.stderr, flush=True)
app.main()
"""


class NoHistory(Exception):
    """The commit of a former release is not in this clone."""


def former_release(name: str) -> Path:
    """The unpacked wheel of a named release. Raises NoHistory."""
    commit = str(json.loads(NAMED.read_text())[name]["commit"])
    made = KEPT / commit
    if made.is_dir():
        return made
    found = subprocess.run(
        ["git", "cat-file", "-e", f"{commit}^{{commit}}"], cwd=ROOT, capture_output=True
    )
    if found.returncode:
        raise NoHistory(f"commit {commit} is not in this clone: fetch the whole history")
    KEPT.mkdir(parents=True, exist_ok=True)
    # Workers and targets at once: one builds it, and the others wait for that.
    with (KEPT / f"{commit}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.is_dir():
            with tempfile.TemporaryDirectory(dir=KEPT) as scratch:
                _built(commit, Path(scratch)).rename(made)
    return made


def _built(commit: str, scratch: Path) -> Path:
    """The wheel of this commit as a directory."""
    tree, archive, unpacked = scratch / "tree", scratch / "tree.tar", scratch / "unpacked"
    tree.mkdir()
    run(["git", "archive", "--output", str(archive), commit], ROOT)
    run(["tar", "-xf", str(archive), "-C", str(tree)], ROOT)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(scratch)]
    run(["env", "CFLAGS=-O0", *build], tree)  # half of the time went into optimizing
    (wheel,) = scratch.glob("dlq-*.whl")
    with zipfile.ZipFile(wheel) as files:
        for each in files.infolist():
            path = files.extract(each, unpacked)
            os.chmod(path, (each.external_attr >> 16) & 0o777 or 0o644)
    return unpacked


class Releases(Daemons):
    """A cluster each of whose daemons runs a former release or this tree."""

    kept = relay = ""  # a former release knows no such settings

    def __init__(
        self,
        root: Path,
        former: Mapping[str, Path],
        founded_by: str = PRESENT,
        agents: tuple[str, ...] = ("n1", "n2"),
    ) -> None:
        """`founded_by`: the release that makes the database, and that all daemons begin with."""
        super().__init__(root, agents)
        self.run_releases(former, founded_by, ("master", *agents))

    def run_releases(
        self, former: Mapping[str, Path], founded_by: str, names: tuple[str, ...]
    ) -> None:
        """The daemons of these names begin with the release that founds the cluster."""
        self._former = former
        self._founded_by = founded_by
        self.releases = dict.fromkeys(names, founded_by)
        self.changes: Counter[str] = Counter()

    def start(self, name: str, **env: str) -> None:
        """Start one, of the release that it is to run."""
        super().start(name, **self._path(self.releases[name]), **env)

    def _path(self, release: str) -> dict[str, str]:
        return {} if release == PRESENT else {"PYTHONPATH": str(self._former[release])}

    def client(self, release: str) -> tuple[list[str], dict[str, str]]:
        """The first words of a `dlq` of that release, and its environment."""
        program = "from dlq_cli.main import main; main()"
        words = [sys.executable, "-P", "-c", program]
        return words, self.environment() | self._path(release)

    def _command(self, name: str) -> list[str]:
        kind = "master" if name.startswith("master") else "nodeagent"
        return [*_launch(kind), "run", "--config", str(self.root / f"{name}.toml")]

    def _run(self, command: click.Command, *arguments: str) -> str:
        """The database is made by the release that founds the cluster."""
        if self._founded_by == PRESENT or arguments[0] != "init":
            return super()._run(command, *arguments)
        done = subprocess.run(
            [*_launch("master"), *arguments],
            env=self.environment() | self._path(self._founded_by),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def change(self, name: str, release: str, *, at_once: bool) -> None:
        """Have this daemon run that release. `at_once`: it is killed, and does not leave in
        order.
        """
        if at_once:
            self.kill(name)
        else:
            self.stop(name)
        self.releases[name] = release
        self.changes[release] += 1
        self.start(name)

    def change_all(self, release: str, chance: random.Random) -> None:
        """Every daemon to that release, in any order, with pauses in which both are at work."""
        names, pause = ["master", *self.agents], threading.Event()
        chance.shuffle(names)
        for name in names:
            self.change(name, release, at_once=chance.random() < 0.25)
            if chance.random() < 0.75:
                self.wait_for(name)
            pause.wait(chance.uniform(0.0, 0.5))
        for name in names:
            self.wait_for(name)

    def seen(self, name: str) -> set[str]:
        """The releases that this daemon has run, by its own log."""
        told = [line for line in self.log(name).splitlines() if SAYS in line]
        paths = {release: str(path) for release, path in self._former.items()}
        return {
            next((release for release, path in paths.items() if path in line), PRESENT)
            for line in told
        }


def _launch(kind: str) -> list[str]:
    return [sys.executable, "-P", "-c", LAUNCH.format(kind=kind, says=SAYS)]

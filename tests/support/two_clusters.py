"""Two real clusters and one user who has both in a list."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, chdir, contextmanager
from pathlib import Path
from typing import Any

from dlq_broker.records import HandOverFiles
from dlq_client.jobs import Jobs
from dlq_client.line.identity import load_identity, save_identity
from support.cli_run import Dlq, Said
from support.harness import Daemons
from support.waiting import wait_until

GPUS = 8  # of the node of each
STEPS = Path(__file__).resolve().parents[2] / "examples" / "jobs" / "steps.py"


class TwoClusters:
    """Clusters a and b, each with a master, a twin and a node of virtual GPUs."""

    def __init__(self, root: Path, clusters: dict[str, Daemons]) -> None:
        self.root, self.clusters = root, clusters
        self.home = root / "me"
        a = load_identity(clusters["a"].root / "home")
        assert a is not None
        save_identity(self.home, a)
        self.list_them({name: one.root / "home" for name, one in clusters.items()})
        self.files = HandOverFiles(self.home / "handovers")

    def list_them(self, homes: dict[str, Path]) -> None:
        shared = f'storage = ["{self.root}/shared"]'
        tables = [f'[clusters.{name}]\nhome = "{home}"\n{shared}\n' for name, home in homes.items()]
        (self.home / "clusters.toml").write_text("".join(tables))

    def dlq(self, *words: str, patience_s: float = 60.0) -> Said:
        with chdir("/tmp"):
            return Dlq(self.home, self.environment)(*words, patience_s=patience_s)

    def said(self, *words: str) -> str:
        done = self.dlq(*words)
        assert done.code == 0, done.err
        return done.out

    @property
    def environment(self) -> dict[str, str]:
        return self.clusters["a"].environment() | {"DLQ_HOME": str(self.home)}

    def submit(self, name: str, *words: str, gpus: int = 1) -> dict[str, Any]:
        """The hand-over of a job that ends at once, as JSON."""
        given = ("submit", "--to", "any", "--json", "--name", name, "--gpus", str(gpus), *words)
        hand: dict[str, Any] = json.loads(self.said(*given, "--", "echo", name))["handover"]
        return hand

    def jobs(self, name: str) -> list[str]:
        """All jobs of this name at both, by global name."""
        found = []
        for cluster, one in self.clusters.items():
            with one.connect() as line:
                listed = Jobs(line).list(name=name).jobs
                found += [f"{cluster}:{job.job_id}" for job in listed]
        return found

    def site(self, cluster: str) -> str:
        """As the command line names it."""
        home = self.clusters[cluster].root / "home"
        identity = load_identity(home)
        assert identity is not None
        return f"{identity.user}@{identity.cluster} in {home}"

    def fill(self, cluster: str) -> str:
        """A job takes all GPUs of it for hours."""
        given = ("--gpus", str(GPUS), "-t", "10:00:00", "--work", "9h", "--parsable")
        job = self.clusters[cluster].said("submit", *given, "--", "sleep", "36000").strip()
        wait_until(lambda: "running" in self.clusters[cluster].said("status", job), what="it runs")
        return job

    def saving(self, name: str, until: Path) -> list[str]:
        """The words of a job that counts steps until a file is there, and saves when asked."""
        (self.root / "shared").mkdir(exist_ok=True)
        steps = [sys.executable, str(STEPS), "--steps", "20", "--seconds", "0.1"]
        place = ("--checkpoint-dir", str(self.root / "shared" / name))
        given = ("--name", name, "--gpus", "1", "--work", "10m", *place)
        return ["submit", "--parsable", *given, "--", *steps, "--until", str(until)]

    def begun(self, name: str) -> int:
        """The step after which a job has begun, as its output says."""
        wait_until(lambda: "begins after step" in self.dlq("logs", name).out, what="it counts")
        return int(self.said("logs", name).partition("begins after step ")[2].split()[0])


@contextmanager
def two_clusters(kinds: Mapping[str, Callable[[Path], Daemons]]) -> Iterator[TwoClusters]:
    """Both are up; `kinds` makes each in a directory of its own. Everything is gone afterwards."""
    root = Path(tempfile.mkdtemp(prefix="dlqmany", dir="/tmp"))
    try:
        with ExitStack() as stack:
            clusters = {}
            for name, kind in kinds.items():
                (root / name).mkdir()
                clusters[name] = stack.enter_context(kind(root / name).up())
            yield TwoClusters(root, clusters)
    finally:
        shutil.rmtree(root)

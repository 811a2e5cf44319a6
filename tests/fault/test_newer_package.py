"""A running master never runs code of a newer package: the whole package is replaced under it.

Every file of the newer package writes down its name and process, and then fails. Helper processes
of the master read it, and are asked nothing (`dlq_master.planner.code`).
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlq_client.jobs import Jobs
from support.harness import BRIEF_SILENCE_S, Daemons
from support.waiting import wait_until
from support.wheels import ROOT

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long("unit/common/daemon/test_pinned.py"),
]

PACKAGES = (
    "proto/gen/dlq", "common/dlq_common", "client/dlq_client", "client/dlq_compat",
    "client/dlq_train", "master/dlq_master", "master/dlq_baselines", "nodeagent/dlq_nodeagent",
    "profiler/dlq_profiler", "simulator/dlq_simulator",
)  # fmt: skip
NEWER = """
import os
with open({seen!r}, "a") as seen:
    seen.write(f"{{os.getpid()}} {{__name__}}\\n")
raise RuntimeError("this is the newer package")
"""


class Copied(Daemons):
    """Its daemons run a copy of the package, as if it were installed."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, ("n1",), silence_s=BRIEF_SILENCE_S, twin=True)
        self.package = root / "package"
        skip = shutil.ignore_patterns("__pycache__", "*.c", "*.h")
        for each in PACKAGES:
            source = ROOT / each
            shutil.copytree(source, self.package / source.name, ignore=skip)

    def start(self, name: str, **env: str) -> None:
        super().start(name, PYTHONPATH=str(self.package), **env)

    def _command(self, name: str) -> list[str]:
        kind = "master" if name == "master" else "nodeagent"
        code = f"from dlq_{kind} import app; app.main()"
        config = str(self.root / f"{name}.toml")
        return [sys.executable, "-P", "-c", code, "run", "--config", config]

    def replace(self, seen: Path) -> None:
        """Install the newer package."""
        newer = NEWER.format(seen=str(seen))
        for file in [*self.package.rglob("*.py")]:
            file.unlink()
            file.write_text(newer)
        for cache in [*self.package.rglob("__pycache__")]:
            shutil.rmtree(cache)


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[Copied]:
    with Copied(tmp_path).up() as made:
        assert isinstance(made, Copied)
        yield made


def test_a_master_whose_package_is_replaced_runs_none_of_the_newer_one(
    daemons: Copied, tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    pids = {str(daemons.pid(name)) for name in ("master", "n1")}
    daemons.replace(seen)
    for command in (
        "submit -G 1 --name one --chdir /tmp -- /bin/true",
        "submit -G 8 --time 1h --deadline 3h --chdir /tmp -- /bin/sleep 1",
        "estimate -G 1 --time 5m",
        "usage", "costs", "promises", "queues", "nodes -R", "events --since 1h",
        "admin policy set chronus -y", "admin policy set edf -y",
        "admin policy set best-effort -y", "admin profile --seconds 1",
        "admin profile --node n1 --seconds 1", "admin status", "doctor",
    ):  # fmt: skip
        daemons.dlq(*command.split())  # some are refused: they would need the newer code
    with daemons.connect() as line:
        jobs = Jobs(line)
        job_id = jobs.submit(daemons.ledger_job(0.0, 3)).job.job_id
        wait_until(lambda: jobs.get(job_id).job.exit_code == 3, what="a job runs and ends")
    told = seen.read_text() if seen.exists() else ""
    assert not {line.partition(" ")[0] for line in told.splitlines()} & pids, told
    assert {str(daemons.pid(name)) for name in ("master", "n1")} == pids
    assert "Traceback" not in daemons.log("n1")
    daemons.stop("n1")
    daemons.stop("master")

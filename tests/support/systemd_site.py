"""A cluster that systemd runs: two booted hosts, installed by the runbook, and a gang across
them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.nspawn import LAST_WORDS, Host
from support.runbook import Block, Runbook
from support.waiting import wait_until

MASTER, AGENT = "dlq-master.service", "dlq-nodeagent.service"
# The site's own changes to our units, as `systemctl edit` would make them: GPUs that exist on
# paper, and a watchdog that need not be waited for.
OVERRIDES = {
    MASTER: "[Service]\nWatchdogSec=8\n",
    AGENT: "[Service]\nWatchdogSec=8\nEnvironment=DLQ_NODE__DEVICES=fake:2xH100-80GB\n",
}
GANG_JOB = Path(__file__).resolve().parents[1] / "systemd/gang_job.py"


@dataclass(slots=True)
class Site:
    """`head` runs the master and a node, `gpu01` a node."""

    head: Host
    gpu01: Host
    runbook: Runbook
    shared: Path
    said: dict[str, str] = field(default_factory=dict)

    @property
    def hosts(self) -> tuple[Host, Host]:
        return self.head, self.gpu01

    def prepare(self, files: Sequence[Path], wheels: Path) -> None:
        """What a site brings along: a user, wheels for pip, and what root copied there."""
        for host in self.hosts:
            host.run("useradd -m -u 1001 -s /bin/bash ada")
            for unit, text in OVERRIDES.items():
                place = host.root() / f"etc/systemd/system/{unit}.d"
                place.mkdir(parents=True)
                (place / "site.conf").write_text(text)
            shutil.copytree(wheels, host.root() / "root/wheels")
            for file in files:
                shutil.copy(file, host.root() / "root")
            (host.root() / "etc/pip.conf").write_text(
                "[global]\nno-index = true\nfind-links = /root/wheels\n"
            )

    def follow(self, section: str, at: int = 0, *, typed: str = "", on: Host | None = None) -> str:
        """Run one block of the runbook as it stands there; what it printed on the last host.

        `typed` is what an operator pastes while it runs.
        """
        block = self.runbook.take(section, at)
        out = ""
        for host in [on] if on is not None else self._hosts_of(block):
            out = host.run(block.script, user=block.user, typed=typed).out
        return out

    def _hosts_of(self, block: Block) -> list[Host]:
        named = [host for host in self.hosts if block.host in (host.name, "both")]
        assert named, f"the runbook names a host that is not here: {block.host}"
        return named

    def nodes(self) -> dict[str, Any]:
        """Nodes by name, as the master sees them."""
        listed = json.loads(self.head.run("dlq nodes --json").out)["nodes"]
        return {node["node_id"]: node for node in listed}

    def wait_up(self, *names: str) -> None:
        """Wait until the master sees these nodes UP."""
        wait_until(
            lambda: all(self.nodes()[name]["state"] == "up" for name in names),
            what=f"{names} are up",
            timeout_s=90,
        )

    def shown(self, job_id: str) -> dict[str, Any]:
        """A job of ada's, as `dlq show` has it."""
        shown = json.loads(self.head.read(f"dlq show {job_id} --json", user="ada"))
        return dict(shown["jobs"][0])

    def story(self, job_id: str) -> str:
        """For failures: the job's events, and the last lines of all daemons."""
        events = self.head.run(f"dlq events {job_id}", user="ada", check=False)
        logs = [host.run(LAST_WORDS, check=False).out for host in self.hosts]
        return "\n".join([events.out, events.err, *logs])

    def property_of(self, host: Host, unit: str, name: str) -> str:
        return host.read(f"systemctl show -p {name} --value {unit}")


class Gang:
    """A job of ada's with a rank on each host, which counts until it is told to stop."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.place = site.shared / "gang"
        self.place.mkdir()
        self.place.chmod(0o777)
        shutil.copy(GANG_JOB, site.shared)
        command = "python3 /shared/gang_job.py /shared/gang"
        words = f"-J count -N 2 --gpus-per-node 1 -- {command}"
        self.job_id = site.head.read(f"dlq submit --parsable {words}", user="ada")
        self.facts = [self._facts(rank) for rank in range(2)]
        self.goes_on()

    def _facts(self, rank: int) -> dict[str, Any]:
        path = self.place / f"facts.{rank}.1.json"
        try:
            wait_until(path.exists, what=f"rank {rank} has begun", timeout_s=60)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.site.story(self.job_id)}") from None
        return dict(json.loads(path.read_text()))

    def host_of(self, rank: int) -> Host:
        return next(host for host in self.site.hosts if host.name == self.facts[rank]["host"])

    def steps(self) -> list[int]:
        """How far each rank has counted."""
        files = [self.place / f"steps.{rank}.1" for rank in range(2)]
        return [len(file.read_text().split()) if file.exists() else 0 for file in files]

    def goes_on(self) -> None:
        """The same processes count on, and no second attempt was ever made."""
        before = self.steps()
        try:
            wait_until(
                lambda: all(now > then + 3 for now, then in zip(self.steps(), before, strict=True)),
                what="both ranks count on",
            )
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.site.story(self.job_id)}") from None
        assert sorted(path.name for path in self.place.glob("facts.*")) == [
            "facts.0.1.json",
            "facts.1.1.json",
        ]

    def running(self) -> None:
        """It goes on, and the master knows it, with its first attempt."""
        self.goes_on()
        wait_until(lambda: self.shown()["state"] == "running", what="the master shows it running")
        assert len(self.shown()["attempts"]) == 1, self.site.story(self.job_id)

    def shown(self) -> dict[str, Any]:
        return self.site.shown(self.job_id)

    def stop(self) -> str:
        """Let it end; its exit is waited for, and its output returned."""
        (self.place / "stop").touch()
        self.site.head.run(f"dlq wait {self.job_id}", user="ada")
        return self.site.head.read(f"dlq logs --rank all {self.job_id}", user="ada")

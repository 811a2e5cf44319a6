"""The cluster that is attacked: real daemons, a user whose jobs keep a ledger, and others who mean
harm.

Where root runs this, jobs run as their submitters: the walls between users stand as on a real host.
Elsewhere all of them are one user, and what needs two says so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from dlq.v1 import job_pb2
from dlq_client.line.connection import Connection
from dlq_client.line.identity import Identity, load_identity
from dlq_common.clock import SteadyClock
from dlq_common.identity.pki import Authority, Role, new_key_and_csr
from dlq_master.serving import read_authority
from support.broker_login import SYSTEM_PYTHON
from support.harness import BIN, HERE, Daemons

CLUSTER = "torture"  # as Daemons founds it
ALICE, MALLORY = 64_201, 64_202  # uids; the others of PEOPLE follow, in its order
PEOPLE = {"alice": Role.USER, "mallory": Role.USER, "olga": Role.OPERATOR, "prism": Role.INFERENCE}
EVIL = "evil"  # a node that has joined, runs no agent of ours, and is given no work
SEVERAL_USERS = os.getuid() == 0


class AttackedSite(Daemons):
    """Three agents and a node of the attacker's. `secret` is in the environment of each of alice's
    jobs.
    """

    ledger_user = "alice"

    def __init__(self, root: Path, seed: int, settings: str = "") -> None:
        super().__init__(root, settings=f'retry_backoff = "200ms"\n{settings}')
        self.secret = f"dlq-canary-{seed:04d}-{os.urandom(6).hex()}"
        self.home = root / "alice"  # of alice's jobs
        self.lair = root / "mallory"  # of mallory's

    @contextmanager
    def up(self) -> Iterator[AttackedSite]:
        """A new cluster with its people and nodes; everything is gone afterwards."""
        for path, uid in ((self.home, ALICE), (self.lair, MALLORY)):
            path.mkdir()
            _give(path, uid)
        shutil.copy(HERE / "ledger_job.py", self.home / "ledger_job.py")
        with super().up():
            for number, (name, role) in enumerate(PEOPLE.items()):
                ids = str(ALICE + number)
                said = ("--role", role.value, "--uid", ids, "--gid", ids)
                self.said("admin", "user", "set", name, *said)
            self._make_agent(EVIL)
            self.said("admin", "node", "cordon", EVIL, "--reason", "an attacker has its key")
            yield self

    def _make_agent(self, name: str) -> None:
        super()._make_agent(name)
        if not SEVERAL_USERS:
            return
        config = self.root / f"{name}.toml"
        config.write_text(config.read_text().replace("allow_root = true", 'run_as = "submitter"'))
        lines = (f"{uid}:{uid}:\n" for uid in (ALICE, MALLORY))
        (self.root / name / "users.map").write_text("".join(lines))

    # --- identities ---------------------------------------------------------------------------

    @property
    def authority(self) -> Authority:
        """The cluster's CA: attackers are given the certificates of those whose keys they took."""
        return read_authority(self.root / "master", CLUSTER)

    def identity(
        self, name: str, role: Role, *, authority: Authority | None = None, now_s: float = 0.0
    ) -> Identity:
        """Of a person or a node, by our CA or another, from now or from another time."""
        founder = load_identity(self.root / "home")
        assert founder is not None
        made, signer = new_key_and_csr(name), authority or self.authority
        now_s = now_s or SteadyClock().now_s()
        certificate = (
            signer.sign_node(made.request, name, now_s)
            if role is Role.NODE
            else signer.sign_user(made.request, name, role, now_s)
        )
        return replace(
            founder,
            key=made.key,
            certificate=certificate,
            user=name,
            role=role.value,
            address=self.api,
        )

    def connect_person(self, name: str, address: str = "") -> Connection:
        """A line of one of PEOPLE."""
        identity = replace(self.identity(name, PEOPLE[name]), address=address or self.api)
        return Connection(identity, patience_s=120.0, deadline_s=20.0)

    def connect_as_user(self, address: str) -> Connection:
        return self.connect_person("alice", address)

    # --- jobs ---------------------------------------------------------------------------------

    def ledger_job(self, seconds: float, code: int, *, nodes: int = 1) -> job_pb2.JobSpec:
        """A job of alice's, with her secret."""
        spec = super().ledger_job(seconds, code, nodes=nodes)
        python = SYSTEM_PYTHON if SEVERAL_USERS else spec.command[0]
        del spec.command[:]
        program = [python, "-I", "-S", str(self.home / "ledger_job.py"), str(self.home / "ledger")]
        spec.command.extend([*program, str(seconds), str(code)])
        spec.working_directory = str(self.home)
        spec.environment["ALICE_SECRET"] = self.secret
        return spec

    def judge(self) -> dict[str, int]:
        ledger = self.home / "ledger"
        (self.root / "ledger").write_text(ledger.read_text() if ledger.exists() else "")
        return super().judge()

    # --- afterwards ---------------------------------------------------------------------------

    def wrongs(self) -> list[str]:
        """What the daemons and the disk themselves say went wrong; the master still runs."""
        found = [
            f"{name} has a traceback in its log"
            for name in ("master", *self.agents)
            if "Traceback (most recent call last)" in self.log(name)
        ]
        found += [
            f"{name} failed at something: {line[:300]}"
            for name in ("master", *self.agents)
            for line in self.log(name).splitlines()
            if '"level": "error"' in line or '"level": "critical"' in line
        ]
        incidents = self.root / "master" / "incidents"
        found += [f"the master put {path.name} aside" for path in incidents.glob("*.json")]
        if self.secret in "".join(self.log(name) for name in ("master", *self.agents)):
            found.append("alice's secret is in a log of a daemon")
        config = ("--config", str(self.root / "master.toml"))
        checked = subprocess.run(
            [str(BIN / "dlq-master"), "verify-audit", *config],
            capture_output=True,
            text=True,
            check=False,
        )
        if checked.returncode != 0:
            found.append(f"the audit is broken: {checked.stdout}{checked.stderr}")
        return found


@contextmanager
def attacked_site(seed: int, settings: str = "") -> Iterator[AttackedSite]:
    """Below /tmp itself, because pytest's own directories are closed to other users."""
    root = Path(tempfile.mkdtemp(prefix="dlq-attack-"))
    root.chmod(0o755)
    try:
        with AttackedSite(root, seed, settings).up() as site:
            yield site
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _give(path: Path, uid: int) -> None:
    path.chmod(0o755)
    if SEVERAL_USERS:
        os.chown(path, uid, uid)

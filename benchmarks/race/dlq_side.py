"""dlq as the other side of the race: a real master, and real agents or virtual ones."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from benchmarks.commands.sbatch_loop import used_s
from benchmarks.live.submits import SETTINGS
from benchmarks.race.clients import Clients
from benchmarks.race.slurm_side import PATIENCE_S, USER_IDS
from benchmarks.support.crowd import GPUS, joined
from benchmarks.support.living import Living
from dlq.v1 import job_pb2, node_pb2
from dlq.v1.admin_service_pb2 import User
from dlq_client.admin import Admin
from dlq_client.jobs import Jobs
from dlq_client.line.connection import Connection
from dlq_client.line.identity import certified, load_identity, save_identity
from dlq_client.nodes import Nodes
from dlq_client.queues import Queues
from dlq_common.identity.pki import Role, new_key_and_csr
from dlq_compat.install import FRONT, install
from dlq_master.serving import read_authority

DEVICES = f"fake:{GPUS}xH100-80GB"
ALIVE = ("queued", "running")
USERS = tuple(pwd.getpwuid(each).pw_name for each in USER_IDS)  # the master looks them up


class DlqSide:
    """One cluster, its commands and its clients."""

    name = "dlq"

    def __init__(self, root: Path, nodes: int, *, virtual: bool = False) -> None:
        self.root, self.nodes, self._virtual = root, nodes, virtual
        self._living = Living(root, SETTINGS + ('[nodes]\nstart_grace = "0s"\n' if virtual else ""))
        self._agents: list[subprocess.Popen[bytes]] = []
        self._fleet: Clients | None = None

    def __enter__(self) -> Self:
        runtime = self.root / "x"
        runtime.mkdir(mode=0o700)
        # The helper of the commands belongs to the race alone.
        self._living.environment |= {
            "HOME": str(self.root), "XDG_RUNTIME_DIR": str(runtime), "LANG": "C.UTF-8",
        }  # fmt: skip
        self._living.__enter__()
        try:
            self._begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._fleet is not None:
            self._fleet.__exit__()
        shutil.rmtree(self.root / "x", ignore_errors=True)  # ends the helper
        self._living.__exit__(None, None, None)

    def _begin(self) -> None:
        self._programs = install(self.root / "programs", FRONT if FRONT.exists() else None)
        if self._virtual:
            self._living.start_anew(joined(self.nodes))
            words = [sys.executable, "-m", "benchmarks.race.fleet", str(self.root), str(self.nodes)]
            self._fleet = Clients([words], self._here)
            self._fleet.__enter__()
        else:
            self._living.run("dlq", "login")
            for number in range(1, self.nodes + 1):
                self._agents.append(self._living.start_agent_soon(f"n{number}", DEVICES))
        self.until(self._all_up, "the nodes")
        self._homes = [self._home_of(*each) for each in zip(USERS, USER_IDS, strict=True)]

    def _home_of(self, name: str, user_id: int) -> Path:
        """A user of the cluster, and the directory of an identity."""
        with self.line() as line:
            Admin(line).set_user(User(name=name, role="user", uid=user_id, gid=user_id))
        own = load_identity(self._living.home)
        assert own is not None
        made = new_key_and_csr(name)
        authority = read_authority(self._living.state_dir, "bench")
        signed = authority.sign_user(made.request, name, Role.USER, time.time())
        save_identity(
            self.root / name, certified(made.key, signed, authority.certificate_pem(), own.address)
        )
        return self.root / name

    def _all_up(self) -> bool:
        with self.line() as line:
            states = [node.state for node in Nodes(line).list()]
        return states == [node_pb2.NODE_STATE_UP] * self.nodes

    @property
    def environment(self) -> dict[str, str]:
        """That of its commands, Slurm's names among them."""
        found = self._living.environment
        return {**found, "PATH": f"{self._programs}:{found['PATH']}"}

    @property
    def _here(self) -> dict[str, str]:
        """That of a Python of this tree."""
        return {**os.environ, "DLQ_HOME": str(self._living.home)}

    def has_helper(self) -> bool:
        """Whether a helper runs its commands; a tree without a C compiler has none."""
        return not FRONT.exists() or any((self.root / "x" / "dlq").glob("*.sock"))

    def end_helper(self) -> None:
        """As before the first call of a user. It ends when its directory has gone."""
        shutil.rmtree(self.root / "x" / "dlq", ignore_errors=True)
        self.until(lambda: not used_s(self.root / "x"), "the end of the helper")

    @contextmanager
    def line(self) -> Iterator[Connection]:
        identity = load_identity(self._living.home)
        assert identity is not None
        with Connection(identity, patience_s=PATIENCE_S, deadline_s=PATIENCE_S) as line:
            yield line

    @staticmethod
    def until(holds: Callable[[], bool], what: str) -> None:
        until_s = time.monotonic() + PATIENCE_S
        while not holds():
            if time.monotonic() > until_s:
                raise TimeoutError(f"{what} did not come")
            time.sleep(0.1)

    # --- its processes --------------------------------------------------------------------------

    def controllers(self) -> list[int]:
        """The master, to which its twin and its planner belong."""
        return [self._living.master.pid]

    def daemons(self) -> list[int]:
        fleet = [] if self._fleet is None else self._fleet.pids
        return [*self.controllers(), *(agent.pid for agent in self._agents), *fleet]

    def an_agent(self) -> int:
        return self._agents[0].pid

    # --- what a user does -----------------------------------------------------------------------

    def fill(self, each_gpus: int) -> None:
        """Jobs that sleep hold all GPUs, `each_gpus` of them each; returns when they run."""
        count = self.nodes * GPUS // each_gpus
        spec = job_pb2.JobSpec(
            name="sleeper", command=["sleep", "86400"], working_directory="/tmp",
            environment={"RUN_S": "86400"},
        )  # fmt: skip
        spec.resources.gpu_count = each_gpus
        with self.line() as line:
            Jobs(line).submit_many([spec] * count)
        self.until(lambda: self.count("running") == count, "the jobs that sleep")

    def count(self, *states: str) -> int:
        with self.line() as line:
            return len(Jobs(line).list(states=states).jobs)

    def clients(
        self, count: int, jobs: int, name: str = "race", shapes: int = 1, *, at_once: bool = False
    ) -> Clients:
        """Clients that submit so many jobs together: with several shapes, of the users in turn."""
        words = [
            sys.executable, "-m", "benchmarks.race.dlq_client", str(jobs // count), name,
            "--shapes", str(shapes), *["--at-once"] * at_once,
        ]  # fmt: skip
        users = self._homes if shapes > 1 else [self._living.home]
        homes = [users[number % len(users)] for number in range(count)]
        return Clients([[*words, "--home", str(home)] for home in homes], self._here)

    def submit(self, jobs: int, name: str = "race", shapes: int = 1) -> None:
        """Into the queue, by one client of each user."""
        users = len(USERS) if shapes > 1 else 1
        with self.clients(users, jobs, name, shapes, at_once=True) as clients:
            clients.go()

    def cancel(self, name: str) -> None:
        """The jobs of this name."""
        self._living.run("dlq", "cancel", "-n", name, "--kill", "--yes")
        with self.line() as line:
            jobs = Jobs(line)
            self.until(lambda: not jobs.list(states=ALIVE, name=name).jobs, "their end")

    def clear(self) -> None:
        """No job is left."""
        if self.count(*ALIVE):
            self._living.run("dlq", "cancel", "-t", ",".join(ALIVE), "--kill", "--yes")
        self.until(lambda: not self.count(*ALIVE), "the end of all jobs")

    # --- its controller -------------------------------------------------------------------------

    def kill_controller(self) -> None:
        self._living.master.kill()
        self._living.master.wait()

    def start_controller(self) -> None:
        """Return as soon as it answers."""
        self._living.master = self._living.start_master()
        with self.line() as line:
            Queues(line).cluster()

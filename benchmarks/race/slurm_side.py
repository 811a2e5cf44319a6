"""Slurm as one side of the race: Debian's packages, real daemons on loopback."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.race.clients import Clients
from support.ports import is_free
from support.real_slurm import RealSlurm

SOURCE = Path(__file__).with_name("slurm_client.c")
# The settings with which Slurm was quickest where many short jobs come; `srun` is slower with them.
MANY_SHORT_JOBS = (
    "batch_sched_delay=0,sched_min_interval=200000,default_queue_depth=10000,partition_job_depth=0,"
    "bf_max_job_test=10000,bf_interval=30,bf_continue,bf_max_time=60,defer"
)
MOST_JOBS = 200_000
USER_IDS = (1, 2, 3)  # of the system; root submits for them
PATIENCE_S = 300.0
_PORTS = range(21_000, 29_000)


class SlurmSide(RealSlurm):
    """One cluster, its commands and its clients."""

    name = "slurm"

    def __init__(self, root: Path, nodes: int, *, many_short_jobs: bool = False) -> None:
        super().__init__(root, block_of_ports(nodes + 1), nodes=nodes)
        self.nodes, self._many_short_jobs = nodes, many_short_jobs
        self._built: Path | None = None

    def __exit__(self, *_: object) -> None:
        """Kill the daemons. `machine.end_all` ends the steps: a slurmd would wait for each."""
        for daemon in self._daemons:
            daemon.kill()
        for daemon in self._daemons:
            daemon.wait()
        os.environ.pop("SLURM_CONF", None)

    @property
    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    def _configure(self) -> None:
        super()._configure()
        path = self.root / "slurm.conf"
        text = path.read_text() + f"MaxJobCount={MOST_JOBS}\nMessageTimeout=60\nTreeWidth=64\n"
        if self._many_short_jobs:
            usual = "batch_sched_delay=0,sched_min_interval=200000\n"
            assert usual in text
            text = text.replace(usual, f"{MANY_SHORT_JOBS}\n")
        path.write_text(text)

    def _until(self, holds: object, what: str) -> None:
        assert callable(holds)
        until_s = time.monotonic() + PATIENCE_S
        while not holds():
            if time.monotonic() > until_s:
                raise TimeoutError(f"{what} did not come up, see {self.root}/log")
            time.sleep(0.1)

    def said(self, *words: str) -> str:
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S)
        return done.stdout

    # --- its processes --------------------------------------------------------------------------

    def controllers(self) -> list[int]:
        """munged and slurmctld."""
        return [self._daemons[0].pid, self._daemons[1].pid]

    def daemons(self) -> list[int]:
        return [daemon.pid for daemon in self._daemons]

    def an_agent(self) -> int:
        return self._daemons[2].pid

    # --- what a user does -----------------------------------------------------------------------

    def fill(self, each_gpus: int) -> None:
        """Jobs that sleep hold all GPUs, `each_gpus` of them each; returns when they run."""
        count = self.nodes * 8 // each_gpus
        words = ["sbatch", "-Q", "-o", "/dev/null", f"-G{each_gpus}", "-N1", "--wrap=sleep 86400"]
        for _ in range(count):
            subprocess.run(words, cwd="/tmp", check=True, stdout=subprocess.DEVNULL)
        self._until(lambda: self.count("RUNNING") == count, "the jobs that sleep")

    def count(self, states: str) -> int:
        return len(self.said("squeue", "-h", "-t", states, "-o", "%i").split())

    def clients(self, count: int, jobs: int, name: str = "race", shapes: int = 1) -> Clients:
        """Clients of libslurm that submit so many jobs together: with several shapes, for the users
        in turn.
        """
        words = [str(self.client_program()), str(jobs // count), name]
        ids = USER_IDS if shapes > 1 else (0,)
        users = [str(ids[number % len(ids)]) for number in range(count)]
        return Clients([[*words, user, str(shapes)] for user in users], self.environment)

    def submit(self, jobs: int, name: str = "race", shapes: int = 1) -> None:
        """Into the queue, by one client of each user."""
        users = len(USER_IDS) if shapes > 1 else 1
        with self.clients(users, jobs, name, shapes) as clients:
            clients.go()

    def client_program(self) -> Path:
        """The client, compiled; needs libslurm-dev."""
        if self._built is None:
            path = self.root / "slurm_client"
            words = ["cc", "-O2", "-o", str(path), str(SOURCE), "-lslurm"]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(
                    f"{done.stderr}\nno libslurm to compile with: apt-get install libslurm-dev"
                )
            self._built = path
        return self._built

    def cancel(self, name: str) -> None:
        """The jobs of this name."""
        self.said("scancel", "-n", name)
        self._until(lambda: not self.said("squeue", "-h", "-n", name, "-o", "%i"), "their end")

    def clear(self) -> None:
        """No job is left."""
        self.said("scancel", "--partition=gpu")
        self._until(lambda: not self.said("squeue", "-h", "-o", "%i"), "the end of all jobs")

    # --- its controller -------------------------------------------------------------------------

    def kill_controller(self) -> None:
        self._daemons[1].send_signal(signal.SIGKILL)
        self._daemons[1].wait()

    def start_controller(self) -> None:
        """Return as soon as it answers."""
        words = (str(self.root / "bin" / "slurmctld"), "-D")
        self._start(*words)
        self._daemons[1] = self._daemons.pop()
        while self._asked(("squeue", "-h", "-j", "1")):
            time.sleep(0.01)

    def _asked(self, words: Sequence[str]) -> bool:
        """Whether the controller does not answer; a job that is not there is an answer."""
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        return "Unable to contact" in done.stderr or "Connection refused" in done.stderr


def missing_for_clients() -> str:
    """The package that the clients lack here; empty: none."""
    if shutil.which("cc") is None:
        return "no cc: apt-get install gcc"
    return "" if Path("/usr/include/slurm/slurm.h").exists() else "apt-get install libslurm-dev"


def block_of_ports(count: int) -> int:
    """The first of so many ports in a row on which nobody listens now."""
    first: int = _PORTS.start + os.getpid() * 97 % (len(_PORTS) - count)
    starts: tuple[int, ...] = (*range(first, _PORTS.stop - count), *range(_PORTS.start, first))
    for start in starts:
        if all(is_free(port) for port in range(start, start + count)):
            return start
    raise OSError(f"there are no {count} free ports in a row")

"""A dlq cluster and a real Slurm with the same nodes, partition and account."""

from __future__ import annotations

import pwd
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from strangers.site import DLQ, Account, StrangersDaemons, accounts_of
from support.accounted_slurm import AccountedSlurm
from support.host_account import free_name, host_account
from support.ports import free_ports

CLUSTER = "torture"  # the harness's
NODES = ("n1", "n2")
CPUS, MEMORY_MIB, GPUS, KIND = 64, 512_000, 8, "h100-80gb"
TEAM = "lab"
_SLURM = (
    "NodeName=n1,n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports} "
    f"CPUs={CPUS} RealMemory={MEMORY_MIB} Gres=gpu:{KIND}:{GPUS} State=UNKNOWN",
    "PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP PreemptMode=REQUEUE",
    "PreemptType=preempt/partition_prio",
    "PreemptMode=REQUEUE",
)


class Pair(NamedTuple):
    """One person on both."""

    dlq: Account
    slurm: Account


class DifferDaemons(StrangersDaemons):
    """Nodes that say the sizes that Slurm's are configured with."""

    def _make_agent(self, name: str) -> None:
        super()._make_agent(name)
        path = self.root / f"{name}.toml"
        more = f'cpus = {CPUS}\nmemory = "{MEMORY_MIB}MiB"\njob_cpus = 16\n'
        path.write_text(path.read_text().replace("[master]", f"{more}\n[master]", 1))


@contextmanager
def pair(root: Path) -> Iterator[Pair]:
    """Both, until the block ends."""
    with ExitStack() as stack:
        who = stack.enter_context(host_account(free_name("s")))
        yield Pair(stack.enter_context(_dlq(root, who)), stack.enter_context(_slurm(root, who)))


@contextmanager
def _dlq(root: Path, who: pwd.struct_passwd) -> Iterator[Account]:
    queue = 'default_queue = "gpu"\n\n[[queues]]\nname = "gpu"\n'  # in the section [jobs]
    daemons = DifferDaemons(root, agents=NODES, settings=queue)
    daemons.people = [who]
    with daemons.up():
        daemons.said("admin", "team", "set", TEAM)
        daemons.said("admin", "team", "add-user", TEAM, who.pw_name)
        programs = root / "commands"
        subprocess.run([DLQ / "dlq", "slurm", "install", programs], check=True, capture_output=True)
        variables = {
            "PATH": f"{programs / 'bin'}:{DLQ}:/usr/local/bin:/usr/bin:/bin",
            "DLQ_LOGIN_SOCKET": daemons.environment()["DLQ_LOGIN_SOCKET"],
        }
        yield accounts_of("dlq", root, [who], variables)["dlq"]


@contextmanager
def _slurm(root: Path, who: pwd.struct_passwd) -> Iterator[Account]:
    place = root / "slurm"
    place.mkdir(mode=0o755)
    made = AccountedSlurm(
        place, free_ports(2 + len(NODES)), cluster=CLUSTER, nodes=NODES, lines=_SLURM, kind=KIND
    )
    with made as slurm:
        slurm.add_user(TEAM, who.pw_name)
        variables = {"PATH": "/usr/local/bin:/usr/bin:/bin", "SLURM_CONF": f"{place}/slurm.conf"}
        yield accounts_of("slurm", root, [who], variables)["slurm"]

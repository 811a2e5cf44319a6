"""A dlq cluster and a real Slurm with the same nodes, partition and account."""

from __future__ import annotations

import json
import os
import pwd
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from support.accounted_slurm import AccountedSlurm
from support.harness import Daemons
from support.ports import free_ports

CLUSTER = "torture"  # the harness's
NODES = ("n1", "n2")
CPUS, MEMORY_MIB, GPUS, KIND = 64, 512_000, 8, "h100-80gb"
TEAM = "lab"
PATIENCE_S = 60.0
_CALLER = Path(__file__).parent / "caller.py"
_SLURM = (
    "NodeName=n1,n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports} "
    f"CPUs={CPUS} RealMemory={MEMORY_MIB} Gres=gpu:{KIND}:{GPUS} State=UNKNOWN",
    "PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP PreemptMode=REQUEUE",
    "PreemptType=preempt/partition_prio",
    "PreemptMode=REQUEUE",
)


class Answer(NamedTuple):
    """What a command says."""

    code: int
    out: str
    err: str


class Side(NamedTuple):
    """One scheduler, as the account of a person."""

    who: pwd.struct_passwd
    home: Path
    call: Callable[[Sequence[str]], Answer]

    def said(self, line: str) -> Answer:
        """A line as a shell reads it, with USER for the account."""
        words = [word.replace("USER", self.who.pw_name) for word in shlex.split(line)]
        return self.call(words)


class DifferDaemons(Daemons):
    """Nodes that say the sizes that Slurm's are configured with; jobs run as their submitter."""

    people: Sequence[pwd.struct_passwd] = ()

    def _make_agent(self, name: str) -> None:
        super()._make_agent(name)
        more = f'cpus = {CPUS}\nmemory = "{MEMORY_MIB}MiB"\njob_cpus = 16\n'
        path = self.root / f"{name}.toml"
        text = path.read_text().replace("[master]", f"{more}\n[master]", 1)
        path.write_text(re.sub("allow_root = .*", 'run_as = "submitter"', text))
        lines = (f"{one.pw_uid}:{one.pw_gid}:\n" for one in self.people)
        (self.root / name / "users.map").write_text("".join(lines))


@contextmanager
def dlq_side(root: Path, who: pwd.struct_passwd) -> Iterator[Side]:
    """A cluster of dlq."""
    queue = 'default_queue = "gpu"\n\n[[queues]]\nname = "gpu"\n'  # in the section [jobs]
    daemons = DifferDaemons(root, agents=NODES, settings=queue)
    daemons.people = [who]
    home = _home(root / "home-a", who)
    with daemons.up():
        daemons.said("admin", "team", "set", TEAM)
        daemons.said("admin", "team", "add-user", TEAM, who.pw_name)
        variables = _variables(who, home) | {
            "PATH": os.environ["PATH"],
            "DLQ_LOGIN_SOCKET": daemons.environment()["DLQ_LOGIN_SOCKET"],
            "DLQ_HOME": str(home / ".dlq"),
        }
        with _caller(who, home, variables) as caller:

            def call(words: Sequence[str]) -> Answer:
                assert caller.stdin
                assert caller.stdout
                caller.stdin.write(json.dumps(["slurm", *words]) + "\n")
                caller.stdin.flush()
                return Answer(*json.loads(caller.stdout.readline()))

            yield Side(who, home, call)


@contextmanager
def _caller(
    who: pwd.struct_passwd, home: Path, variables: Mapping[str, str]
) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-B", str(_CALLER), str(who.pw_uid), str(who.pw_gid), str(home)]
    process = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(variables)
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def slurm_side(root: Path, who: pwd.struct_passwd) -> Iterator[Side]:
    """A real Slurm with its accounting."""
    place = root / "slurm"
    place.mkdir(mode=0o755)
    home = _home(root / "home-b", who)
    made = AccountedSlurm(
        place, free_ports(2 + len(NODES)), cluster=CLUSTER, nodes=NODES, lines=_SLURM, kind=KIND
    )
    with made as slurm:
        slurm.add_user(TEAM, who.pw_name)
        variables = _variables(who, home) | {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "SLURM_CONF": f"{place}/slurm.conf",
        }

        def call(words: Sequence[str]) -> Answer:
            done = subprocess.run(
                list(words), cwd=home, env=variables, text=True, stdin=subprocess.DEVNULL,
                capture_output=True, timeout=PATIENCE_S, user=who.pw_uid, group=who.pw_gid,
                extra_groups=[], check=False,
            )  # fmt: skip
            return Answer(done.returncode, done.stdout, done.stderr)

        yield Side(who, home, call)


def _home(path: Path, who: pwd.struct_passwd) -> Path:
    path.mkdir(mode=0o700)
    os.chown(path, who.pw_uid, who.pw_gid)
    return path


def _variables(who: pwd.struct_passwd, home: Path) -> dict[str, str]:
    return {
        "HOME": str(home), "USER": who.pw_name, "LOGNAME": who.pw_name, "LANG": "C.UTF-8",
    }  # fmt: skip

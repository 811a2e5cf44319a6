"""A real Slurm of several nodes with its accounting (MariaDB and slurmdbd)."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from support.real_slurm import BASE_CONF, NEEDED, RealSlurm

_CONF = (
    BASE_CONF
    + """\
ClusterName={cluster}
SlurmdLogFile={root}/log/%n.log
JobAcctGatherType=jobacct_gather/linux
MaxArraySize=10001
SchedulerParameters=batch_sched_delay=0,sched_min_interval=200000,bf_interval=1
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={dbd_port}
AccountingStoragePass={root}/munge/sock
AccountingStorageTRES=gres/gpu
PriorityType=priority/multifactor
PriorityWeightAge=1000
PriorityWeightFairshare=10000
"""
)
_DBD = """\
AuthType=auth/munge
AuthInfo=socket={root}/munge/sock
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={dbd_port}
CommunicationParameters=NoInAddrAny
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StoragePass=peer
StorageLoc=acct
LogFile={root}/log/slurmdbd.log
PidFile={root}/slurmdbd.pid
"""
_GRANT = (
    "create database if not exists acct;"
    "create or replace user 'slurm'@'localhost' identified by 'peer';"
    "grant all on acct.* to 'slurm'@'localhost'"
)


def missing() -> str:
    """What is not installed, or why it cannot run here; empty: nothing."""
    needed = (*NEEDED, "slurmdbd", "mariadbd", "mariadb-install-db")
    away = [name for name in needed if shutil.which(name) is None]
    if away:
        return f"no {', '.join(away)}: apt-get install slurm-wlm munge slurmdbd mariadb-server"
    return "" if os.getuid() == 0 else "Slurm's daemons need root here"


class AccountedSlurm(RealSlurm):
    """Starts it. The first of `ports` is the controller's, the second slurmdbd's, the rest are of
    the nodes.
    """

    def __init__(
        self,
        root: Path,
        ports: Sequence[int],
        *,
        cluster: str,
        nodes: Sequence[str],
        lines: Sequence[str],
        kind: str,
    ) -> None:
        """`kind`: of its GPUs. `lines`: of slurm.conf, about nodes and partitions, with `{host}`
        and `{ports}` for ours.
        """
        super().__init__(root, ports[0])
        self._dbd_port, self._node_ports = ports[1], ports[2:]
        self._cluster, self._nodes, self._lines, self._kind = cluster, nodes, lines, kind

    def __enter__(self) -> Self:
        for name in ("munge", "state", "spool", "log", "bin", "dev", "db", "dbrun"):
            (self.root / name).mkdir(mode=0o755)
        self._configure()
        os.environ["SLURM_CONF"] = str(self.root / "slurm.conf")
        try:
            self._start_all()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start_all(self) -> None:
        munge = self.root / "munge"
        files = [f"--{name}-file={munge}/{name}" for name in ("key", "pid", "log", "seed")]
        self._start("munged", "--foreground", "--force", f"--socket={munge}/sock", *files)
        self._until(lambda: (munge / "sock").exists(), "munge")
        self._start_database()
        self._start(str(self.root / "bin" / "slurmctld"), "-D", "-c")
        for name in self._nodes:
            spool = self.root / "spool" / name
            spool.mkdir()
            self._start(
                str(self.root / "bin" / "slurmd"), "-D", "-d",
                str(self.root / "bin" / "slurmstepd"), "-N", name,
            )  # fmt: skip
        idle = len(self._nodes)
        self._until(
            lambda: self.said("sinfo", "-h", "-N", "-o", "%t").count("idle") == idle, "the nodes"
        )

    def _start_database(self) -> None:
        place, run = self.root / "db", self.root / "dbrun"
        owner = pwd.getpwnam("mysql")
        for path in (place, run):
            os.chown(path, owner.pw_uid, owner.pw_gid)
        subprocess.run(
            [
                "mariadb-install-db", "--user=mysql", f"--datadir={place}", "--skip-test-db",
                "--auth-root-authentication-method=socket",
            ],
            check=True, capture_output=True,
        )  # fmt: skip
        self._start(
            "mariadbd", "--no-defaults", "--user=mysql", f"--datadir={place}",
            f"--socket={run}/s", f"--pid-file={run}/p", "--skip-networking",
            "--innodb-flush-log-at-trx-commit=2",
        )  # fmt: skip
        self._until(lambda: self._sql("select 1"), "the database")
        assert self._sql(_GRANT)
        variables = {"MYSQL_UNIX_PORT": f"{run}/s", "SLURM_CONF": f"{self.root}/slurmdbd.conf"}
        self._start(
            "env", *(f"{name}={text}" for name, text in variables.items()), "slurmdbd", "-D"
        )
        self._until(lambda: self._accounts("show", "cluster"), "slurmdbd")
        self._accounts("add", "cluster", self._cluster)

    def _sql(self, text: str) -> bool:
        words = ["mariadb", f"--socket={self.root}/dbrun/s", "-e", text]
        return subprocess.run(words, capture_output=True, check=False).returncode == 0

    def _accounts(self, *words: str) -> bool:
        done = subprocess.run(["sacctmgr", "-i", "-n", *words], capture_output=True, check=False)
        return done.returncode == 0

    def add_user(self, account: str, user: str) -> None:
        """A user in an account, which sbatch then takes for its jobs."""
        self._accounts("add", "account", account, f"cluster={self._cluster}")
        assert self._accounts("add", "user", user, f"account={account}")

    def _configure(self) -> None:
        super()._configure()
        host = socket.gethostname().partition(".")[0]
        words = {
            "host": host, "port": self._port, "root": self.root, "dbd_port": self._dbd_port,
            "cluster": self._cluster,
        }  # fmt: skip
        ports = "[" + ",".join(str(port) for port in self._node_ports) + "]"
        lines = [line.format(host=host, ports=ports) for line in self._lines]
        (self.root / "slurm.conf").write_text(_CONF.format(**words) + "\n".join(lines) + "\n")
        (self.root / "slurmdbd.conf").write_text(_DBD.format(**words))
        (self.root / "slurmdbd.conf").chmod(0o600)
        gres = f"AutoDetect=off\nName=gpu Type={self._kind} File={self.root}/dev/gpu[0-7]\n"
        (self.root / "gres.conf").write_text(gres)

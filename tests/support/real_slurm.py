"""A Slurm of its own on loopback, from Debian's packages: munge, one controller, and nodes with
eight GPUs of no substance each.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel")
BASE_CONF = """\
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={root}/munge/sock
CredType=cred/munge
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool/%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd-%n.pid
SlurmctldLogFile={root}/log/slurmctld.log
MpiDefault=none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
ReturnToService=2
KillWait=30
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
GresTypes=gpu
SlurmdParameters=config_overrides
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
"""
_CONF = (
    BASE_CONF
    + """\
ClusterName=dlqtest
SlurmdPort={node_port}
SlurmdLogFile={root}/log/slurmd.log
JobAcctGatherType=jobacct_gather/none
SchedulerParameters=batch_sched_delay=0,sched_min_interval=200000
AccountingStorageType=accounting_storage/none
{nodes}PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE DefaultTime=60 State=UP
"""
)
_NODE = """\
NodeName=node{number} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=64 RealMemory=500000 Gres={gres} State=UNKNOWN
"""  # noqa: E501


def missing() -> str:
    """What is not installed, or why it cannot run here; empty: nothing."""
    away = [name for name in NEEDED if shutil.which(name) is None]
    if away:
        return f"no {', '.join(away)}: apt-get install slurm-wlm munge"
    return "" if os.getuid() == 0 else "Slurm's daemons need root here"


class RealSlurm:
    """Starts it; `SLURM_CONF` is set for this process meanwhile."""

    def __init__(self, root: Path, port: int, *, nodes: int = 1, gpu_type: str = "") -> None:
        """It takes `port` and one more for each node, from there on upwards."""
        self.root, self._port = root, port
        self._node_count, self._gpu_type = nodes, gpu_type
        self._daemons: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        for name in ("munge", "state", "spool", "log", "bin", "dev"):
            (self.root / name).mkdir(mode=0o755)
        self._configure()
        os.environ["SLURM_CONF"] = str(self.root / "slurm.conf")
        try:
            munge = self.root / "munge"
            self._start(
                "munged",
                "--foreground",
                "--force",
                f"--key-file={munge}/key",
                f"--socket={munge}/sock",
                f"--pid-file={munge}/pid",
                f"--log-file={munge}/log",
                f"--seed-file={munge}/seed",
            )
            self._until(lambda: (munge / "sock").exists(), "munge")
            self._start(str(self.root / "bin" / "slurmctld"), "-D", "-c")
            daemon, step = (str(self.root / "bin" / name) for name in ("slurmd", "slurmstepd"))
            for number in range(1, self._node_count + 1):
                self._start(daemon, "-D", "-d", step, "-N", f"node{number}")
            self._until(self._all_idle, "the nodes")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.said("scancel", "--state=RUNNING")
        for daemon in reversed(self._daemons):
            daemon.terminate()
        for daemon in self._daemons:
            with suppress(subprocess.TimeoutExpired):
                daemon.wait(timeout=10.0)
            daemon.kill()
            daemon.wait()
        os.environ.pop("SLURM_CONF", None)

    def said(self, *words: str) -> str:
        """What a command prints, whatever its exit code."""
        return subprocess.run(words, capture_output=True, text=True, timeout=30.0).stdout

    def _all_idle(self) -> bool:
        return self.said("sinfo", "-h", "-N", "-o", "%t").split() == ["idle"] * self._node_count

    def jobs(self) -> list[str]:
        """Ids of jobs that are there or coming."""
        return self.said("squeue", "-h", "-o", "%i", "--states=PENDING,RUNNING").split()

    def _configure(self) -> None:
        key = self.root / "munge" / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        for number in range(8):  # GPUs must be character devices: copies of the null device
            os.mknod(self.root / "dev" / f"gpu{number}", 0o20666, os.makedev(1, 3))
        # The daemons look at their own names: as "slurmd-wlm" they drop Gres=.
        for name in ("slurmctld", "slurmd", "slurmstepd"):
            (self.root / "bin" / name).symlink_to(f"/usr/sbin/{name}-wlm")
        host = socket.gethostname().partition(".")[0]
        kind = f":{self._gpu_type}" if self._gpu_type else ""
        nodes = [
            _NODE.format(number=each, host=host, port=self._port + each, gres=f"gpu{kind}:8")
            for each in range(1, self._node_count + 1)
        ]
        text = _CONF.format(
            host=host, port=self._port, node_port=self._port + 1, root=self.root,
            nodes="".join(nodes),
        )  # fmt: skip
        (self.root / "slurm.conf").write_text(text)
        named = f"Type={self._gpu_type} " if self._gpu_type else ""
        gres = f"AutoDetect=off\nName=gpu {named}File={self.root}/dev/gpu[0-7]\n"
        (self.root / "gres.conf").write_text(gres)
        (self.root / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")

    def _start(self, *words: str) -> None:
        with (self.root / "log" / "daemons").open("ab") as log:
            self._daemons.append(
                subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            )

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        end_s = time.monotonic() + 30.0
        while not holds():
            if time.monotonic() > end_s:
                raise TimeoutError(f"{what} did not come up, see {self.root}/log")
            time.sleep(0.1)

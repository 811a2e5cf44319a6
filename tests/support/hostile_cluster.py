"""A cluster for jobs that mean harm: small limits, one small disk, and a watch over every
heartbeat.
"""

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dlq.v1 import node_pb2
from dlq_client.nodes import Nodes
from dlq_common.errors import Unavailable
from dlq_nodeagent.cgroups import directories
from dlq_nodeagent.cgroups.detect import mounts_of, node_group
from dlq_nodeagent.cgroups.port import CgroupDir
from dlq_nodeagent.cgroups.trees import V1_KINDS
from support.harness import Daemons
from support.waiting import wait_until

PIDS_MAX = 200
_EVERY_S = 0.1
_JOBS = f"pids_max = {PIDS_MAX}\n"
_SMALL_DISK = '\n[disk]\nspare = "8MiB"\n'
_SETTINGS = 'retry_backoff = "200ms"\n'  # goes on in [jobs]


class HostileDaemons(Daemons):
    """Four agents; the state directory of `small` is a file system of its own of 64 MiB."""

    small = "n4"

    def __init__(self, root: Path) -> None:
        super().__init__(root, agents=("n1", "n2", "n3", self.small), settings=_SETTINGS)

    @contextmanager
    def up(self) -> Iterator[Daemons]:
        disk = self.root / self.small
        disk.mkdir(mode=0o711)
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=64m,mode=711", "tmpfs", disk], check=True
        )
        try:
            with super().up() as running:
                yield running
        finally:
            subprocess.run(["umount", "-l", disk], check=True)

    def pid(self, name: str) -> int:
        """The process of a daemon."""
        return self._running[name].pid

    def dead(self, name: str) -> bool:
        """Whether somebody else has killed it."""
        return self._running[name].poll() is not None

    def bury(self, name: str) -> None:
        """Take note of a daemon that somebody else has killed."""
        self._running.pop(name).wait()

    def _make_agent(self, name: str) -> None:
        super()._make_agent(name)
        path = self.root / f"{name}.toml"
        text = path.read_text().replace("[jobs]\n", f"[jobs]\n{_JOBS}")
        path.write_text(text + _SMALL_DISK if name == self.small else text)


def _found(mount: Path, below: str) -> list[Path]:
    """The directories of this pattern. A job that ends meanwhile takes its own away: look again."""
    while True:
        with suppress(FileNotFoundError):
            return [*mount.glob(below)]


class RankGroups:
    """The control groups of one rank: what the kernel itself counts there."""

    def __init__(self, daemons: Daemons, node: str, name: str) -> None:
        below = f"**/dlq/{node_group(node, daemons.root / node)}/{name}"
        mounts = mounts_of(Path("/proc/self/mounts").read_text(), V1_KINDS)
        self._dirs = tuple(
            CgroupDir(kind, str(found))
            for kind, mount in mounts.items()
            for found in _found(mount, below)
        )
        self._counters = [Path(each.path) for each in self._dirs if _counts(Path(each.path))]
        assert len(self._counters) == 1, (self._dirs, self._counters)

    def processes(self) -> int:
        """How many there are now; none once the groups are gone."""
        try:
            return int((self._counters[0] / "pids.current").read_text())
        except FileNotFoundError:
            return 0

    def refused(self) -> int:
        """How often the kernel has refused one more."""
        events = (self._counters[0] / "pids.events").read_text().split()
        return int(events[events.index("max") + 1])

    def kill(self) -> None:
        """Whatever became of the test: nothing of it goes on."""
        wait_until(lambda: directories.kill(self._dirs) == 0, what="it is dead", timeout_s=120.0)


def _counts(group: Path) -> bool:
    return (group / "pids.max").exists()


class HeartbeatWatch:
    """Reads again and again when the master last heard of each node, by the master's own
    records.
    """

    def __init__(self, daemons: Daemons) -> None:
        self._daemons = daemons
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._look, name="heartbeats")
        self._lock = threading.Lock()
        self._last_s: dict[str, float] = {}
        self._longest_s: dict[str, float] = {}
        self._states: dict[str, tuple[int, tuple[str, ...]]] = {}
        self._excused: set[str] = set()

    @contextmanager
    def running(self) -> Iterator["HeartbeatWatch"]:
        self._thread.start()
        try:
            yield self
        finally:
            self._enough.set()
            self._thread.join()

    def longest_s(self) -> dict[str, float]:
        """Node -> the longest time between two contacts that followed each other."""
        with self._lock:
            return dict(self._longest_s)

    def now(self) -> dict[str, tuple[int, tuple[str, ...]]]:
        """Node -> its state and flags as they were last seen."""
        with self._lock:
            return dict(self._states)

    def excuse(self, name: str) -> None:
        """The agent of this node will be killed: until `expect`, it need not be heard of."""
        with self._lock:
            self._excused.add(name)

    def expect(self, name: str) -> None:
        """It is back."""
        with self._lock:
            self._excused.remove(name)
            self._last_s.pop(name)

    def _look(self) -> None:
        with self._daemons.connect() as line:
            nodes = Nodes(line)
            while not self._enough.wait(_EVERY_S):
                with suppress(Unavailable):
                    for node in nodes.list():
                        self._note(node)

    def _note(self, node: node_pb2.Node) -> None:
        contact_s = node.contact_time.ToNanoseconds() / 1e9
        with self._lock:
            gap_s = contact_s - self._last_s.get(node.node_id, contact_s)
            self._last_s[node.node_id] = contact_s
            if node.node_id not in self._excused:
                self._longest_s[node.node_id] = max(gap_s, self._longest_s.get(node.node_id, 0.0))
            self._states[node.node_id] = node.state, tuple(node.flags)

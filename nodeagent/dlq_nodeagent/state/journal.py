"""The agent's own durable memory: JSON that a person can read.

`node.json` holds the highest epoch obeyed and the report numbers given out, and is replaced by
tmp + fsync + rename + fsync. `ranks.log` holds the master's orders for ranks; records of many ranks
wait for the disk together (rank_log.py). The ranks' processes and ends are not here: the runtime
keeps them.
"""

import json
import re
import zlib
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from dlq_common.daemon.logs import get_logger
from dlq_common.fence import LeaderFence
from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.messages import Launch, ProfileFound
from dlq_nodeagent.model.rank import FoundCheckpoint, RankState, RankSuspension, Stopping
from dlq_nodeagent.state.rank_log import DAMAGED, RankLog
from dlq_nodeagent.state.state_dir import replace_file
from dlq_nodeagent.state.values import changed_fields, from_plain, to_json

_VERSION = 1
_SUM = b', "crc": '
_HAS_HEAD = "ranks_have_head"  # of node.json: ranks.log was written by an agent that heads it
_END_OF_BEFORE = re.compile(rb'"sequence_limit": ?\d+\}\s*$')  # of an agent that wrote no sum
DISK_REMEDY = "make room, or look at the disk of this node; it is recorded again then"
_REMEDY = "look at the disk; when no former master runs any more, move the file away"

log = get_logger("nodeagent.journal")


class JournalDamaged(Exception):
    """The journal cannot be read; the agent refuses to start rather than forget an epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """Numbers that never go back: the highest epoch, and the limit of given report numbers.

    `system` and `timeline` are of the database of the master that was obeyed last.
    """

    highest_epoch: int = 0
    sequence_limit: int = 0
    system: str = ""
    timeline: int = 0

    @property
    def fence(self) -> LeaderFence:
        """Nothing below it is obeyed."""
        return LeaderFence(self.system, self.timeline, self.highest_epoch)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRecord:
    """The agent's knowledge of a rank after its own death; `recorded_s` is UTC seconds."""

    launch: Launch
    state: RankState
    floor_mtime_ns: int = 0
    stopping: Stopping | None = None
    suspension: RankSuspension | None = None
    checkpoint: FoundCheckpoint | None = None
    done: bool = False
    error: str = ""
    exit_code: int | None = None
    no_room: bool = False
    start_cause: str = ""
    image_digest: str = ""
    ports: tuple[int, ...] = ()
    recorded_s: float = 0.0
    end_told: bool = False
    """Its end was reported before its GPUs were free."""
    found: ProfileFound | None = None
    """Its traffic, as long as the master does not have it."""
    profiled: bool = False
    """The master has it, or there is nothing to tell."""
    steps_told: bool = False
    """The master has all its steps, and it has ended."""


KEPT_OF_A_RANK = (
    *("floor_mtime_ns", "stopping", "checkpoint", "done", "error", "exit_code", "no_room"),
    *("start_cause", "image_digest", "ports", "suspension"),
)
"""Fields of a rank that its record has by the same names."""


class Journal(Protocol):
    """An OSError means that nothing may be assumed."""

    def load(self) -> tuple[NodeRecord, tuple[RankRecord, ...]]:
        """All that was saved, ranks in key order."""
        ...

    def save_node(self, record: NodeRecord) -> None:
        """Replace the node's record; durable on return."""
        ...

    def save_rank(self, record: RankRecord) -> None:
        """Insert or replace the record of one rank. It outlives the agent now, and the host's
        power after the next `sync`.
        """
        ...

    def sync(self) -> None:
        """Wait until all saved ranks are durable. Cheap when they are."""
        ...

    def drop_rank(self, key: RankKey) -> None:
        """Forget a rank; no effect when it is not there."""
        ...


class FileJournal:
    """The real one. Only one agent may use a directory at a time (daemon.py holds its lock)."""

    def __init__(self, directory: Path) -> None:
        self._node = directory / "node.json"
        self._log = RankLog(directory / "ranks.log")
        self._before = directory / "ranks"  # a file for each rank, by agents up to 0.2
        self._launches: dict[str, tuple[Launch, bytes]] = {}
        # Environments of jobs are in here: only the agent may read them.
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.chmod(0o700)

    def load(self) -> tuple[NodeRecord, tuple[RankRecord, ...]]:
        """A log with a record that cannot be read is put aside too, never deleted."""
        node, has_head = NodeRecord(), False
        if self._node.exists():
            node, has_head = _read_node(self._node)
        self._log.read(has_head=has_head)
        self._take_over()
        records = [record for key in list(self._log.entries) if (record := self._record_of(key))]
        with suppress(OSError):  # a full disk
            self._log.write_anew()
        return node, tuple(sorted(records, key=lambda record: record.launch.key.numbers()))

    def damaged(self) -> tuple[Path, ...]:
        return (*self._log.damaged(), *sorted(self._before.glob(f"*{DAMAGED}")))

    def save_node(self, record: NodeRecord) -> None:
        told = {"v": _VERSION, _HAS_HEAD: self._log.has_head} | asdict(record)
        replace_file(self._node, _with_sum(told))

    def save_rank(self, record: RankRecord) -> None:
        key, launch = str(record.launch.key), record.launch
        known = self._launches.get(key)
        if known is None or known[0] is not launch:
            known = self._launches[key] = (launch, to_json(launch))
        rest = {"v": _VERSION} | changed_fields(record, but=("launch",))
        self._log.add(key, known[1], to_json(rest))

    def sync(self) -> None:
        self._log.sync()

    def drop_rank(self, key: RankKey) -> None:
        self._launches.pop(str(key), None)
        self._log.drop(str(key))

    def _record_of(self, key: str) -> RankRecord | None:
        launch, rest = self._log.entries[key]
        try:
            whole = {**json.loads(rest), "launch": json.loads(launch)}
            record: RankRecord = _structure(whole, RankRecord)
        except _UNREADABLE:
            self._log.put_aside()
            del self._log.entries[key]
            return None
        return record

    def _take_over(self) -> None:
        """Records of an agent before this one; its files go when all are in the log."""
        files = sorted(self._before.glob("*.json")) if self._before.exists() else []
        for path in files:
            try:
                if path.stem not in self._log.entries:
                    self.save_rank(_read(path, RankRecord))
            except JournalDamaged:
                path.rename(path.with_suffix(DAMAGED))
        self.sync()
        for path in files:
            path.unlink(missing_ok=True)


class Sequences:
    """Numbers that rise over all lives of the agent, reserved in blocks to spare the disk.

    A full disk does not stop them, nor the obedience to a new master: heartbeats must go on.
    Otherwise healthy jobs would end with their hold. An unsaved number is saved with the next
    change.
    """

    _BLOCK = 1000

    def __init__(self, journal: Journal, node: NodeRecord) -> None:
        self._journal = journal
        self.node = node
        self._next = node.sequence_limit + 1

    def next(self) -> int:
        """A number larger than every one given out before, in this life or an earlier one."""
        if self._next > self.node.sequence_limit:
            self._save(replace(self.node, sequence_limit=self._next + self._BLOCK - 1))
        number, self._next = self._next, self._next + 1
        return number

    def raise_fence(self, fence: LeaderFence) -> None:
        """Remember a later leader before anything it orders is done."""
        system, timeline, epoch = fence
        self._save(replace(self.node, highest_epoch=epoch, system=system, timeline=timeline))

    def _save(self, node: NodeRecord) -> None:
        self.node = node
        try:
            self._journal.save_node(node)
        except OSError as error:
            log.error("node_not_recorded", error=str(error), remedy=DISK_REMEDY)


_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError)


def _read(path: Path, kind: Any) -> Any:
    try:
        return _structure(json.loads(path.read_bytes()), kind)
    except _UNREADABLE as error:
        raise JournalDamaged(f"{path}: {error}") from error


def _read_node(path: Path) -> tuple[NodeRecord, bool]:
    """A lower epoch than the true one would let a former master give orders. The other answer:
    whether the log of ranks must have its head.
    """
    try:
        content = _summed(path.read_bytes())
        has_head = content.pop(_HAS_HEAD, False) is True
        node: NodeRecord = _structure(content, NodeRecord)
    except _UNREADABLE as error:
        raise JournalDamaged(f"{path} is damaged: {error}; {_REMEDY}") from error
    return node, has_head


def _with_sum(content: dict[str, Any]) -> bytes:
    """JSON whose last field is the checksum of the bytes before it. An older agent passes over
    it.
    """
    head = to_json(content)[:-1]
    return head + _SUM + b'"%08x"}' % zlib.crc32(head)


def _summed(data: bytes) -> dict[str, Any]:
    """ValueError for content that the disk has changed. That of an older agent has no sum."""
    content: dict[str, Any] = json.loads(data)
    head, found, told = data.rpartition(_SUM)
    old = not found and _END_OF_BEFORE.search(data) is not None
    if not old and told != b'"%08x"}' % zlib.crc32(head):
        raise ValueError("it does not match its checksum")
    return content


def _structure(content: dict[str, Any], kind: Any) -> Any:
    if content.pop("v") != _VERSION:
        raise ValueError("another version")
    return from_plain(kind, content)

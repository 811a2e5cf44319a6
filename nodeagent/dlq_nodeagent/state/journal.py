"""The agent's own durable memory: plain JSON files, each replaced by tmp + fsync + rename + fsync.

`node.json` holds the highest epoch obeyed and the report numbers given out; `ranks/17.2.0.json` the
master's order for one rank. The ranks' processes and ends are not here: the runtime keeps them.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import cattrs
import structlog
from cattrs.gen import make_dict_structure_fn

from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.messages import Fence, Launch, ProfileFound
from dlq_nodeagent.model.rank import FoundCheckpoint, RankState, Stopping
from dlq_nodeagent.state.state_dir import replace_file

_VERSION = 1
_DAMAGED = ".damaged"

log = structlog.get_logger("nodeagent.journal")


class JournalDamaged(Exception):
    """The journal cannot be read; the agent refuses to start rather than forget an epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """Numbers that never go back: the highest epoch, and the limit of given report numbers."""

    highest_epoch: int = 0
    sequence_limit: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRecord:
    """The agent's knowledge of a rank after its own death; `recorded_s` is UTC seconds."""

    launch: Launch
    state: RankState
    floor_mtime_ns: int = 0
    stopping: Stopping | None = None
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
    *("start_cause", "image_digest", "ports"),
)
"""Fields of a rank that its record has by the same names."""


class Journal(Protocol):
    """Durable on return of every call; an OSError means that nothing may be assumed."""

    def load(self) -> tuple[NodeRecord, tuple[RankRecord, ...]]:
        """All that was saved, ranks in key order."""
        ...

    def save_node(self, record: NodeRecord) -> None:
        """Replace the node's record."""
        ...

    def save_rank(self, record: RankRecord) -> None:
        """Insert or replace the record of one rank."""
        ...

    def drop_rank(self, key: RankKey) -> None:
        """Forget a rank; no effect when it is not there."""
        ...


class FileJournal:
    """The real one. Only one agent may use a directory at a time (daemon.py holds its lock)."""

    def __init__(self, directory: Path) -> None:
        self._node = directory / "node.json"
        self._ranks = directory / "ranks"
        # Environments of jobs are in here: only the agent may read them.
        self._ranks.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.chmod(0o700)

    def load(self) -> tuple[NodeRecord, tuple[RankRecord, ...]]:
        """A rank's file that cannot be read is put aside, never deleted."""
        node = _read(self._node, NodeRecord) if self._node.exists() else NodeRecord()
        records = []
        for path in sorted(self._ranks.glob("*.json")):
            try:
                records.append(_read(path, RankRecord))
            except JournalDamaged:
                path.rename(path.with_suffix(_DAMAGED))
        return node, tuple(sorted(records, key=lambda record: record.launch.key.numbers()))

    def damaged(self) -> tuple[Path, ...]:
        return tuple(sorted(self._ranks.glob(f"*{_DAMAGED}")))

    def save_node(self, record: NodeRecord) -> None:
        _replace(self._node, record)

    def save_rank(self, record: RankRecord) -> None:
        _replace(self._path(record.launch.key), record)

    def drop_rank(self, key: RankKey) -> None:
        self._path(key).unlink(missing_ok=True)

    def _path(self, key: RankKey) -> Path:
        # Parsing refuses anything but digits, for any key.
        return self._ranks / f"{RankKey.parse(str(key))}.json"


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

    def raise_epoch(self, epoch: int) -> None:
        """Remember a higher epoch before anything it orders is done."""
        self._save(replace(self.node, highest_epoch=epoch))

    def _save(self, node: NodeRecord) -> None:
        self.node = node
        try:
            self._journal.save_node(node)
        except OSError as error:
            log.error("node_not_recorded", error=str(error))


def _read(path: Path, kind: Any) -> Any:
    try:
        content = json.loads(path.read_bytes())
        if content.pop("v") != _VERSION:
            raise ValueError("another version")
        return _CONVERTER.structure(content, kind)
    except (ValueError, KeyError, TypeError, AttributeError, cattrs.BaseValidationError) as error:
        raise JournalDamaged(f"{path}: {error}") from error


def _replace(path: Path, record: NodeRecord | RankRecord) -> None:
    content = json.dumps({"v": _VERSION} | _CONVERTER.unstructure(record)).encode()
    replace_file(path, content)


def _make_converter() -> cattrs.Converter:
    converter = cattrs.Converter()
    for kind in (RankKey, Fence):
        converter.register_unstructure_hook(kind, list)
        converter.register_structure_hook(kind, lambda value, wanted: wanted(*value))
    kinds = (Launch, FoundCheckpoint, ProfileFound, RankRecord, Stopping, NodeRecord)
    for dataclass_kind in kinds:
        hook = make_dict_structure_fn(dataclass_kind, converter)
        converter.register_structure_hook(dataclass_kind, hook)
    return converter


_CONVERTER = _make_converter()

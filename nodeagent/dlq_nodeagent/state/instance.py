"""The identity of this agent: one process, one memory, one machine. It tells apart agents with one
certificate.

The memory is the journal and the attempts' directories together. Each carries the same mark. When
one of them was lost or is of another time, the remaining records are put aside and the memory is a
new one.
"""

import hashlib
import json
from pathlib import Path

from dlq_common.daemon.logs import get_logger
from dlq_common.errors import ConfigError
from dlq_common.ids import Ids
from dlq_nodeagent.model.messages import Instance
from dlq_nodeagent.state.state_dir import replace_file

_MACHINE_FILES = (Path("/sys/class/dmi/id/product_uuid"), Path("/etc/machine-id"))
_MARK = "memory"

log = get_logger("nodeagent.instance")


def read_machine_id(files: tuple[Path, ...] = _MACHINE_FILES) -> str:
    """Names the machine over boots without telling its source; empty without a readable one.

    The firmware's number comes first: images of machines are copied with their `machine-id`.
    """
    found = []
    for path in files:
        try:
            found.append(path.read_text().strip())
        except OSError:
            found.append("")
    # Both, since either may be a vendor's constant.
    return hashlib.sha256("\n".join(found).encode()).hexdigest()[:32] if any(found) else ""


def open_instance(state_dir: Path, ids: Ids, machine_id: str, boot_id: str) -> Instance:
    """The instance of an agent that holds the lock of `state_dir`. ConfigError when its records
    were made on another machine: they are not true here.
    """
    journal, attempts = state_dir / "journal", state_dir / "attempts"
    journal.mkdir(mode=0o700, parents=True, exist_ok=True)
    attempts.mkdir(mode=0o711, parents=True, exist_ok=True)
    kept = _read_mark(journal / _MARK)
    if machine_id and kept.get("machine_id", machine_id) != machine_id:
        raise ConfigError(
            f"the records in {state_dir} were made on another machine",
            hint="if this is a copy: remove the directory and join anew (dlq-nodeagent join). If "
            "the disk was "
            f"moved here and the old machine is off: remove {journal} and {attempts}, start "
            "again, then "
            "`dlq admin node fence NODE` on a client",
            key="node.state_dir",
        )
    memory_id = kept.get("memory_id", "")
    if not memory_id or _read_mark(attempts / _MARK).get("memory_id") != memory_id:
        if memory_id:
            _put_aside(journal / "ranks", ids)
        memory_id = ids.request_id()
        said = {"memory_id": memory_id, "machine_id": machine_id}
        # The attempts first: a crash between the two makes the memory a new one again.
        for directory in (attempts, journal):
            replace_file(directory / _MARK, json.dumps(said).encode())
    found = state_dir.stat()
    # The boot, since a copied disk has the same numbers.
    place = f"{found.st_dev}:{found.st_ino}:{boot_id}"
    return Instance(
        process_id=ids.request_id(), place=place, memory_id=memory_id, machine_id=machine_id
    )


def _put_aside(ranks: Path, ids: Ids) -> None:
    """Records of ranks without directories would be taken for ranks that never started."""
    if ranks.is_dir() and any(ranks.glob("*.json")):
        aside = ranks.with_name(f"ranks-{ids.request_id()}")
        ranks.rename(aside)
        log.error(
            "journal_put_aside", path=str(aside), why="the directories of its attempts are gone"
        )


def _read_mark(path: Path) -> dict[str, str]:
    try:
        said = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return {str(key): str(value) for key, value in said.items()} if isinstance(said, dict) else {}

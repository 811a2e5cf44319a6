"""Evidence of a check that did not hold: logs and outputs, one text file for each check.

The directory of a check is gone when it has ended. So the words of its daemons, of its jobs and of
the check itself are copied before that, into DIR/logs/CHECK.txt.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

AGENT_LOG = "dlq-nodeagent.log"
LOGS = (AGENT_LOG, "dlq-master.log")
OUTPUTS = "output.*"  # of jobs, as `dlq logs` has them
NOTES = "notes.*"
SAID = "said"  # by the check's own process
_LAST_BYTES = 200_000  # of one log
_LAST_LINES, _LAST_CHARACTERS = 3, 240


def keep(name: str, root: Path, out: Path) -> Path | None:
    """Copy the evidence of a check that ran in `root`; None where it left none."""
    parts = [f"==== {path.relative_to(root)}\n{text}\n" for path, text in _told(root)]
    if not parts:
        return None
    folder = out / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.txt"
    path.write_text("\n".join(parts))
    return path


def last_words(root: Path) -> str:
    """The last lines of the agent's log, each cut; empty without an agent."""
    lines = _read(root / "site" / AGENT_LOG).splitlines()[-_LAST_LINES:]
    return " | ".join(line[:_LAST_CHARACTERS] for line in lines)


def _told(root: Path) -> Iterator[tuple[Path, str]]:
    site = root / "site"
    found = [root / SAID, *(site / name for name in LOGS)]
    for pattern in (OUTPUTS, NOTES):
        found += sorted(site.glob(pattern))
    for path in found:
        if text := _read(path).strip():
            yield path, text


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _LAST_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""

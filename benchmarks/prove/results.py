"""The last run of each campaign: kept in the repository, so that the page says when it was."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import ROOT
from benchmarks.prove.parts import Part

FOLDER = ROOT / "benchmarks" / "prove" / "results"


@dataclass(frozen=True, slots=True)
class Result:
    """One run of a campaign."""

    campaign: str
    day: str
    commit: str
    full: bool  # the whole of the full form was run, well or not
    took_s: int
    conditions: str
    found: list[dict[str, Any]]  # figures, as each command told them
    failed: str = ""  # the last lines of a command that failed
    parts: list[Part] = field(default_factory=list)  # of a run that was made of some

    def keep(self, folder: Path = FOLDER) -> None:
        """Write it in the place of the last run."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.campaign}.json"
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")


def kept(campaign: str, folder: Path = FOLDER) -> Result | None:
    """The last run; None: it never ran."""
    path = folder / f"{campaign}.json"
    if not path.exists():
        return None
    told = json.loads(path.read_text())
    told["parts"] = [Part(**each) for each in told.get("parts", ())]
    return Result(**told)

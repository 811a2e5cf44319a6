"""The word of the shipping process to its host: one small file in the state directory.

The master reads it for its metrics, and `dlq-master shipping` prints it. A process that hangs or is
gone writes no more: the age of `complete_s` then grows all the same.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from dlq_master.control.config import SHIPPING_STATUS

STATUS: Final = SHIPPING_STATUS
SUPERSEDED: Final = "superseded"  # another master has taken this one's place


@dataclass(frozen=True, slots=True)
class ShippingStatus:
    """`complete_s`: every commit before it is in the second place; 0: none is yet. `since_s`: this
    process ships since then.
    """

    time_s: float
    since_s: float = 0.0
    complete_s: float = 0.0
    behind_bytes: int = 0
    epoch: int = 0
    sequence: int = 0
    failure: str = ""


def read_status(state_dir: Path) -> ShippingStatus | None:
    """None: this master ships nothing, or has not begun."""
    try:
        return ShippingStatus(**json.loads((state_dir / STATUS).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def write_status(state_dir: Path, status: ShippingStatus) -> None:
    """In the place of the last one."""
    unfinished = state_dir / f"{STATUS}.part"
    unfinished.write_text(json.dumps(asdict(status)))
    unfinished.replace(state_dir / STATUS)

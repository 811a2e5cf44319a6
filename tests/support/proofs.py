"""The figures of a campaign, such as a thousand kills: printed, and kept for the page of proofs.

`make prove` (benchmarks/prove) runs a campaign with DLQ_PROOFS set to a file. Each campaign adds
one line of JSON to it when it has found everything as promised. The world in one seed also tells
what broke.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path


def proved(campaign: str, **figures: float | str | Sequence[float] | Sequence[str]) -> None:
    """Tell the figures of a campaign."""
    line = json.dumps({"campaign": campaign, **figures})
    print(f"\nproved: {line}")  # noqa: T201 - the figures of the run
    if path := os.environ.get("DLQ_PROOFS"):
        with Path(path).open("a") as file:
            file.write(f"{line}\n")

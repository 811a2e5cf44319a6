"""How long and from where: `make attack MINUTES=10 SEED=1`."""

import os

MINUTES = float(os.environ.get("MINUTES", "10"))
SEED = int(os.environ.get("SEED", "1"))


def seconds(share: float) -> float:
    """So much of the whole time."""
    return MINUTES * 60.0 * share

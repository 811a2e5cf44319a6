"""The example jobs are scripts, not a package: their directory goes onto the path."""

import sys
from pathlib import Path

JOBS = Path(__file__).resolve().parents[3] / "examples" / "jobs"
sys.path.insert(0, str(JOBS))

"""The examples are scripts, not packages: their directories go onto the path."""

import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
sys.path[:0] = [str(EXAMPLES / "jobs"), str(EXAMPLES / "demo")]

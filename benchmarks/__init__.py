"""Measures speed: one command for each claim, `python -m benchmarks.ROOM.NAME`.

They share the support of the tests, which is not installed: it is found beside this folder.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests"))

"""Measures speed: one command for each claim, `python -m benchmarks.NAME`.

They share the support of the tests, which is not installed: it is found beside this folder.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "tests"))

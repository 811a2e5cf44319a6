"""Facts that other processes append to a file, a line of JSON each, read while they write."""

import json
from pathlib import Path
from typing import Any


def json_lines(path: Path) -> list[dict[str, Any]]:
    """Every fact that is there as a whole: a line that goes over the end of a page is seen in
    halves.
    """
    if not path.exists():
        return []
    *whole, _unfinished = path.read_text().split("\n")
    return [json.loads(line) for line in whole]

"""Runs the tests that failed in the last `make test` or `make test-rest` once more, one by one.

    python tests/support/failed_again.py DIRECTORY

DIRECTORY has a directory for each run of pytest, with its cache and its exit code. The tests that
pass now are printed, one a line behind `UNSTEADY`: each of them failed beside others. Exits with
pytest's code, and with 1 where a run ended by anything but failed tests.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

_LAST_FAILED = "v/cache/lastfailed"
_ANY_MARKER = ("-m", "")


def failed_in(directory: Path) -> list[str]:
    """The ids of all tests that failed in the runs of `directory`, in order.

    Raises ValueError for a run that was cut, or that ended by another error than failed tests.
    """
    found: set[str] = set()
    for run in sorted(directory.iterdir()):
        code = run / "code"
        ended = code.read_text().strip() if code.exists() else "nothing"
        names = run / _LAST_FAILED
        failed = json.loads(names.read_text()) if names.exists() else {}
        if ended != ("1" if failed else "0"):
            raise ValueError(f"{run.name} ended with {ended}, and {len(failed)} tests failed")
        found.update(failed)
    return sorted(found)


def main(words: list[str]) -> int:
    try:
        failed = failed_in(Path(words[0]))
    except (OSError, ValueError) as error:
        sys.stderr.write(f"more than failed tests went wrong: {error}\n")
        return 1
    if not failed:
        return 0
    pytest = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"]
    code = subprocess.run([*pytest, *_ANY_MARKER, *failed], check=False).returncode
    if code == 0:
        sys.stdout.write("".join(f"UNSTEADY {test}\n" for test in failed))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`dlq` as the package installs it, in its own directory; its interpreter counts its starts."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from dlq_compat.install import FRONT
from support.front import Front
from support.harness import Daemons

PLAIN = "dlq-python"
_COUNTING = """\
#!{python}
import sys
if sys.argv[2:3] != ["serve"]:
    with open({log!r}, "a") as log:
        print(*sys.argv[1:], file=log)
from dlq_cli.main import main
main()
"""


class FrontDlq(Front):
    """`bin/dlq` is the front, and beside it stands a program that notes each call of its own."""

    def __init__(self, daemons: Daemons, root: Path) -> None:
        super().__init__(daemons, root)
        self.log = root / "alone"
        self.log.touch()
        self.own = root / "own" / "bin"
        self.own.mkdir(parents=True)
        shutil.copy(FRONT, self.own / "dlq")
        script = _COUNTING.format(python=sys.executable, log=str(self.log))
        (self.own / PLAIN).write_text(script)
        (self.own / PLAIN).chmod(0o755)
        self.environment["PATH"] = f"{self.own}:{self.environment['PATH']}"

    def dlq(
        self, *words: str, given: str | None = None, **more: str
    ) -> subprocess.CompletedProcess[str]:
        """One `dlq` to its end."""
        return subprocess.run(
            [str(self.own / "dlq"), *words],
            env=self.environment | more, cwd=self.root, text=True, capture_output=True,
            input=given, stdin=None if given is not None else subprocess.DEVNULL, timeout=120,
        )  # fmt: skip

    def alone(self) -> int:
        """The number of calls that an interpreter of their own has run so far."""
        return len(self.log.read_text().splitlines())

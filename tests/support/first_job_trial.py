"""From an empty environment to the first job, as a new user goes: the last step of `make package`,
and the measurement of `benchmarks/commands/first_job.py`.

Pip installs `dlq[all]` from the wheel, `dlq up` starts the cluster, and a job runs. Root lets an
unprivileged account do all of it. The goal is five minutes; the figures are printed, never judged.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

from support.host_account import CAN_MAKE_ACCOUNTS, free_name, host_account

GOAL_S = 300.0
UNTIL = ("environment", "pip install", "dlq up", "first job")
STOCK = "/usr/bin/python3"  # an unprivileged account may not reach another one


class NewUser:
    """An account with an empty home, and the seconds that each of its steps took."""

    def __init__(self, home: Path, account: pwd.struct_passwd | None) -> None:
        """`account` None: the one that runs this."""
        self._home = home
        self.took_s: dict[str, float] = {}
        self._becomes: list[str] = []
        if account is not None:
            os.chown(home, account.pw_uid, account.pw_gid)
            rights = (f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups")
            self._becomes = ["setpriv", *rights]
        (self._home.parent).chmod(0o755)

    def step(self, name: str, *command: str, may_fail: bool = False) -> str:
        """Run a command and keep its time; leave with its words when it fails."""
        began_s = time.monotonic()
        kept = {key: os.environ[key] for key in ("PIP_CERT", "PIP_FIND_LINKS") if key in os.environ}
        done = subprocess.run(
            [*self._becomes, *command], cwd=self._home, text=True, capture_output=True, check=False,
            env={"HOME": str(self._home), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", **kept},
        )  # fmt: skip
        self.took_s[name] = time.monotonic() - began_s
        if done.returncode and not may_fail:
            raise SystemExit(f"first job: {name}: {done.stdout}{done.stderr}")
        return done.stdout


def attempt(wheel: Path, home: Path, account: pwd.struct_passwd | None) -> dict[str, float]:
    """The seconds of each step."""
    python = STOCK if account is not None else sys.executable
    user, program = NewUser(home, account), str(home / "env" / "bin" / "dlq")
    user.step("environment", python, "-m", "venv", "env")
    wanted = f"dlq[all] @ {wheel.as_uri()}"
    user.step("pip install", "env/bin/pip", "install", "--quiet", wanted)
    try:
        user.step("dlq up", program, "up", "--devices", "fake:2")
        said = user.step("first job", program, "run", "-G", "1", "--", "sh", "-c", "echo done")
        if said != "done\n":
            raise SystemExit(f"first job: it said {said!r}")
        facts = json.loads(user.step("status", program, "up", "--status", "--json"))
        if facts["box"]["page"] is None:
            raise SystemExit("first job: there is no page")
    finally:
        user.step("dlq down", program, "down", "--force", may_fail=True)
    return user.took_s


def timed(wheel: Path) -> dict[str, float]:
    """The seconds of each step, in a home that is gone afterwards."""
    place = Path(tempfile.mkdtemp(prefix="dlq-first-job-"))
    try:
        home, given = place / "home", place / wheel.name
        home.mkdir()
        shutil.copy(wheel, given)
        with host_account(free_name()) if CAN_MAKE_ACCOUNTS else nullcontext() as account:
            return attempt(given, home, account)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def main(wheel: Path) -> None:
    """Print the steps and their sum."""
    took_s = timed(wheel)
    parts = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in took_s.items())
    until = sum(took_s[name] for name in UNTIL)
    load = os.getloadavg()[0]
    print(f"until the first job: {until:.0f} s of {GOAL_S:.0f} s ({parts}; load {load:.1f})")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

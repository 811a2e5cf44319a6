"""Units of the user's systemd: the box starts at login, and systemd starts its keeper anew.

Jobs live in a unit of their own, as on servers. A control group below the keeper's unit would keep
systemd from starting that unit again (docs/internals/adr/0014-jobs-beside-the-agents-unit.md). When
the machine goes down, or the last session ends, that unit stops last, and this module is its word
for the jobs: `python -m dlq_cli.up.units HOME`.
"""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from dlq_cli.up.place import Box, read_box
from dlq_cli.up.processes import jobs_here
from dlq_common.errors import ConfigError

LINGER = Path("/var/lib/systemd/linger")
_JOBS = """\
# Made by `dlq up --at-login`. The control group of jobs, which outlives the agent.
[Unit]
Description=dlq up: jobs
RefuseManualStop=no

[Service]
Type=exec
ExecStart=/bin/sleep infinity
# Guards first: a job that answers SIGTERM by saving and leaving with 0 would be recorded as
# completed. Without a record its attempt counts as lost, and the job runs again.
ExecStop=-{python} -P -m dlq_cli.up.units {home}
KillSignal=SIGKILL
Delegate=yes
TasksMax=infinity
OOMPolicy=continue

[Install]
WantedBy=default.target
"""
_BOX = """\
# Made by `dlq up --at-login`; `dlq up --not-at-login` removes it.
[Unit]
Description=dlq up: the cluster of this user
Wants={jobs}
After={jobs}

[Service]
Type=exec
ExecStart={python} -P -m dlq_cli.up.keeper {home}
# Jobs and their guards outlive the daemons.
KillMode=process
Restart=always
RestartSec=2
TimeoutStopSec=90

[Install]
WantedBy=default.target
"""


def unit_of(box: Box) -> str:
    """The name of the box's unit."""
    return f"dlq-{box.name}.service"


def units(box: Box) -> dict[str, str]:
    """File name -> text."""
    jobs = f"dlq-{box.name}-jobs.service"
    words = {"python": _quoted(sys.executable), "home": _quoted(str(box.home))}
    return {jobs: _JOBS.format(**words), unit_of(box): _BOX.format(jobs=jobs, **words)}


def unit_dir(environ: Mapping[str, str]) -> Path:
    """The directory of this user's own units."""
    told = environ.get("XDG_CONFIG_HOME")
    return (Path(told) if told else Path("~/.config").expanduser()) / "systemd" / "user"


def is_installed(box: Box, environ: Mapping[str, str]) -> bool:
    """Whether the box starts at login."""
    return (unit_dir(environ) / unit_of(box)).exists()


def is_current(box: Box, environ: Mapping[str, str]) -> bool:
    """Whether it does so by the units of this release."""
    directory = unit_dir(environ)
    try:
        return all((directory / name).read_text() == text for name, text in units(box).items())
    except OSError:
        return False


def install(box: Box, environ: Mapping[str, str]) -> None:
    """Write the units and enable them. ConfigError without a systemd of this user."""
    systemctl("show-environment")
    directory = unit_dir(environ)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in units(box).items():
            (directory / name).write_text(text)
    except OSError as error:
        raise ConfigError(f"{error.filename}: {error.strerror}") from None
    systemctl("daemon-reload")
    systemctl("enable", *units(box))


def start(box: Box) -> None:
    """Start the keeper as a unit."""
    systemctl("start", *units(box))


def stop(box: Box) -> None:
    """End the keeper; the unit for jobs stays as long as jobs may be in it."""
    systemctl("stop", unit_of(box))


def remove(box: Box, environ: Mapping[str, str]) -> None:
    """Take the units away. A keeper that runs as a unit goes on until it is stopped."""
    systemctl("disable", *units(box))
    for name in units(box):
        (unit_dir(environ) / name).unlink(missing_ok=True)
    systemctl("daemon-reload")


def lingers() -> bool:
    """Whether units of this user run without a login."""
    return (LINGER / pwd.getpwuid(os.geteuid()).pw_name).exists()


def login_words(*, at_login: bool) -> str:
    """When the box starts by itself from now on."""
    if not at_login:
        return "the box does not start at login"
    if lingers():
        return "it starts with this machine, and goes on after you log out (linger is on)"
    return (
        "it starts when you log in. Without linger it ends with your last session, and so do your "
        "jobs; `loginctl enable-linger` starts it with the machine"
    )


def systemctl(*words: str) -> None:
    """One call of the user's systemd. ConfigError with its words."""
    try:
        done = subprocess.run(
            ["systemctl", "--user", *words], capture_output=True, text=True, check=False
        )
    except OSError:
        raise ConfigError("there is no systemd here", hint="`dlq up` runs without it") from None
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"systemctl --user {words[0]} failed"]
        raise ConfigError(
            f"systemd of this user: {said[-1]}",
            hint="log in by ssh or on the console, not by su; `dlq up` runs without systemd",
        )


def main(home: str) -> None:
    """Kill the guards of all jobs here. Their jobs are killed next, by systemd."""
    box = read_box(Path(home))
    for pid in () if box is None else jobs_here(box):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _quoted(text: str) -> str:
    """A word of a unit's command line."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'


if __name__ == "__main__":
    main(sys.argv[1])

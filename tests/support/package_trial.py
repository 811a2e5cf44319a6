"""Builds the wheel and runs every entry point from empty environments: what `make package` does.

Each environment holds the wheel, one extra and nothing else, so that a dependency which only the
development environment has is found here. `UV` names the uv to use.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from support import first_job_trial

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "requirements.lock"
SHIM = (
    "import os, dlq_nodeagent as a; p = a.__path__[0] + '/shim/dlq-shim'; assert os.access(p, "
    "os.X_OK), p"
)
# Its application is made, with each template and each file of the page, from the wheel alone.
PAGES = (
    "import jinja2, dlq_web.running, dlq_web.serving, dlq_web.shared, pathlib; "
    "p = pathlib.Path(dlq_web.__path__[0]) / 'pages'; "
    "e = jinja2.Environment(loader=jinja2.FileSystemLoader(p / 'templates')); "
    "assert len([e.loader.get_source(e, n) for n in e.list_templates()]) > 20; "
    "assert (p / 'static/style.css').stat().st_size; "
    "assert (p / 'static/vendor/uplot/LICENSE').exists()"
)
# Units, accounts and manual pages of the two services.
SHARED = (
    "man/man8/dlq-notify.8",
    "man/man8/dlq-web.8",
    "dlq/systemd/dlq-notify.service",
    "dlq/systemd/dlq-web.service",
    "dlq/systemd/dlq-web.socket",
    "dlq/sysusers.d/dlq-notify.conf",
    "dlq/sysusers.d/dlq-web.conf",
    "dlq/tmpfiles.d/dlq-web.conf",
)
SHARE = '"$(dirname "$(command -v python)")/../share"'


@dataclass(frozen=True, slots=True)
class Trial:
    """An environment with one extra, and the commands that must work in it."""

    extra: str
    commands: tuple[str, ...]


TRIALS = (
    Trial(
        "",
        (
            "dlq --help",
            "dlq --version",
            "dlq version --client",
            "dlq submit --help",
            "python -c 'import dlq_client, dlq_train'",
            "python -c 'import dlq; dlq.connect, dlq.Executor, dlq.aio.connect'",
        ),
    ),
    Trial("master", ("dlq-master --version", "dlq-master --help", "dlq-master run --help")),
    Trial(
        "agent",
        (
            "dlq-nodeagent --version",
            "dlq-nodeagent --help",
            "dlq-nodeagent run --help",
            f'python -c "{SHIM}"',
        ),
    ),
    Trial("sim", ("dlq simulate --help",)),
    Trial("functions", ("python -c 'import cloudpickle, dlq; dlq.Executor'",)),
    Trial("submitit", ('python -c \'import submitit; submitit.AutoExecutor(".", "dlq")\'',)),
    Trial(
        "notify",
        (
            "dlq-notify --version",
            "dlq-notify --help",
            "dlq-notify run --help",
            f"dlq-notify run --config {SHARE}/dlq/config/notify.toml --check-config",
            *(f"test -s {SHARE}/{name}" for name in SHARED),
        ),
    ),
    Trial(
        "web",
        (
            "dlq web --help",
            "dlq-web --version",
            "dlq-web --help",
            "dlq-web serve --help",
            f'python -c "{PAGES}"',
            f"dlq-web serve --config {SHARE}/dlq/config/web.toml --check-config",
        ),
    ),
    # With the libraries where there was a compiler: the command's own exit code comes through.
    Trial("profile", ("dlq profile show --help", "dlq profile run --json -- sh -c 'exit 0'")),
)


def build(uv: str, out: Path) -> Path:
    """Build the wheel in an environment of its own and return its path."""
    run([uv, "build", "--quiet", "--wheel", "--out-dir", str(out), str(ROOT)], cwd=ROOT)
    (wheel,) = out.glob("*.whl")
    return wheel


def attempt(uv: str, wheel: Path, trial: Trial, scratch: Path) -> None:
    """Install the wheel with the trial's extra into an empty environment and run its commands."""
    venv = scratch / (trial.extra or "base")
    run([uv, "venv", "--quiet", "--python", sys.executable, str(venv)], cwd=scratch)
    wanted = f"dlq[{trial.extra}] @ {wheel.as_uri()}" if trial.extra else f"dlq @ {wheel.as_uri()}"
    python = str(venv / "bin" / "python")
    install = [uv, "pip", "install", "--quiet", "--python", python, "--constraint", str(LOCK)]
    run([*install, wanted], cwd=scratch)
    for command in trial.commands:
        print(f"  {trial.extra or 'base'}: {command}", flush=True)
        path = f"{venv / 'bin'}:/usr/bin:/bin"
        environment = {"PATH": path, "HOME": str(scratch), "LANG": "C.UTF-8"}
        run(["sh", "-c", command], cwd=scratch, env=environment, stdout=subprocess.DEVNULL)


def run(
    command: list[str], *, cwd: Path, env: dict[str, str] | None = None, stdout: int | None = None
) -> None:
    """Run a command; when it fails, leave with its status, its own words above."""
    done = subprocess.run(
        command, cwd=cwd, env=env, stdout=stdout, stdin=subprocess.DEVNULL, check=False
    )
    if done.returncode:
        raise SystemExit(f"package: `{' '.join(command)}` ended with {done.returncode}")


def main() -> None:
    uv = os.environ.get("UV", "uv")
    uv = str((ROOT / uv).resolve()) if "/" in uv else uv
    with tempfile.TemporaryDirectory(prefix="dlq-package-") as scratch:
        wheel = build(uv, Path(scratch) / "dist")
        print(f"built {wheel.name}", flush=True)
        for trial in TRIALS:
            attempt(uv, wheel, trial, Path(scratch))
        first_job_trial.main(wheel)
        (ROOT / "dist").mkdir(exist_ok=True)
        kept = ROOT / "dist" / wheel.name
        kept.write_bytes(wheel.read_bytes())
    print(f"every entry point works; the wheel is {kept.relative_to(ROOT)}")


if __name__ == "__main__":
    main()

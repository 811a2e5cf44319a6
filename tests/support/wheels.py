"""Wheels for hosts without a package index: this tree, the next release, one that does not
start.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOST_PYTHON = "3.11"  # of Debian 12, which the hosts run
FILES = ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "NOTICE")
# Its command works and accepts a configuration; only the daemon itself does not come up.
BROKEN_AGENT = """

async def run_agent(config, **_):
    raise ConfigError("this release does not start")
"""


def build_wheel(scratch: Path, *, version: str, broken: bool = False) -> Path:
    """A wheel of this tree that calls itself `version`; a broken one has an agent that ends at
    once.
    """
    tree = scratch / f"tree-{version}"
    tree.mkdir()
    for part in (*FILES, *_rooms()):
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, tree / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, tree / part)
    project = tree / "pyproject.toml"
    project.write_text(
        re.sub(r'(?m)^version = ".*"$', f'version = "{version}"', project.read_text(), count=1)
    )
    if broken:
        daemon = tree / "nodeagent/dlq_nodeagent/daemon.py"
        daemon.write_text(daemon.read_text() + BROKEN_AGENT)
    run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(scratch)], tree)
    shutil.rmtree(tree)
    (wheel,) = scratch.glob(f"dlq-{version}-*.whl")
    return wheel


def _rooms() -> list[str]:
    """The directories that the build reads."""
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"][
        "targets"
    ]["wheel"]
    return sorted({Path(path).parts[0] for path in (*wheel["packages"], *wheel["shared-data"])})


def download_wheels(wheel: Path, target: Path) -> None:
    """Everything all roles need on the hosts' Python, pinned by the lock; nothing of dlq
    itself.
    """
    pins = target.parent / "constraints.txt"
    lock = (ROOT / "requirements.lock").read_text()
    pins.write_text("\n".join(re.findall(r"(?m)^([\w.-]+==[^\\\n]+)", lock)))
    wanted = f"dlq[master,agent,web] @ {wheel.as_uri()}"
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    pip += ["--python-version", HOST_PYTHON, "--only-binary", ":all:"]
    run([*pip, "--dest", str(target), "--constraint", str(pins), wanted], ROOT)
    for own in target.glob("dlq-*.whl"):
        own.unlink()


def run(command: list[str], cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-2000:]}")

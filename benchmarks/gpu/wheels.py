"""Wheels for a host without a network: the needs of dlq's daemons, in the versions of the lock.

    python -m benchmarks.gpu.wheels PYTHON_VERSION PIP_PYTHON [--have NAME ...]

Fetches into build/gpu-wheels. PYTHON_VERSION is that of the host, such as 3.12. PIP_PYTHON has pip
here. `--have` leaves out packages that the host has, such as numpy beside PyTorch. The shim and the
recorder of this tree go beside the wheels, for a host without a C compiler.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from benchmarks import ROOT
from benchmarks.gpu.bare import BUILT, EXTRAS, WHEELS

COMPILED = (("nodeagent/dlq_nodeagent/shim", "dlq-*"), ("profiler/dlq_profiler/lib", "*.so"))
BUILD = ("hatchling",)  # hatch_build.py, which compiles the shim, is a plugin of it
PLATFORMS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014")


def main() -> None:
    """Fetch them anew."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("version")
    parser.add_argument("pip_python")
    parser.add_argument("--have", nargs="*", default=[])
    parser.add_argument("--machine", default="x86_64")
    chosen = parser.parse_args()
    wanted = needed(chosen.version) - set(map(canonicalize_name, chosen.have))
    shutil.rmtree(WHEELS, ignore_errors=True)
    platforms = [f"--platform={name}_{chosen.machine}" for name in PLATFORMS]
    subprocess.run(
        [
            chosen.pip_python, "-m", "pip", "download", "--quiet", "--no-deps",
            "--disable-pip-version-check", "--only-binary=:all:", "--implementation=cp",
            f"--python-version={chosen.version}", *platforms, f"--dest={WHEELS}",
            *pinned(wanted, chosen.version),
        ],
        check=True,
    )  # fmt: skip
    keep_built()
    found = list(WHEELS.glob("*.whl"))
    size = sum(path.stat().st_size for path in found) / 2**20
    print(f"{len(found)} wheels, {size:.0f} MiB, in {WHEELS}")


def keep_built(root: Path = ROOT, to: Path = BUILT) -> list[Path]:
    """Copy what is compiled in this tree, by its path there. Processor and C library must be
    those of the host.
    """
    kept = []
    for folder, pattern in COMPILED:
        for path in sorted((root / folder).glob(pattern)):
            if path.is_file():
                target = to / path.relative_to(root)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, target)
                kept.append(target)
    return kept


def needed(version: str) -> set[str]:
    """Distributions that dlq's master and agent need there, and their own needs."""
    found: set[str] = set()
    left = [(canonicalize_name("dlq"), EXTRAS), *((canonicalize_name(name), ()) for name in BUILD)]
    while left:
        name, extras = left.pop()
        for one in _requirements(name, extras, version):
            need = canonicalize_name(one.name)
            if need not in found:
                found.add(need)
                left.append((need, tuple(one.extras)))
    return found | set(BUILD)


def pinned(names: Iterable[str], version: str) -> list[str]:
    """The same with the versions of the lock."""
    lines = re.findall(
        r"(?m)^([A-Za-z0-9][^ \\]*==[^\\]*)", (ROOT / "requirements.lock").read_text()
    )
    locked = [one for one in map(Requirement, lines) if _holds(one, version)]
    versions = {canonicalize_name(one.name): str(one.specifier) for one in locked}
    return [f"{name}{versions[canonicalize_name(name)]}" for name in sorted(names)]


def _holds(one: Requirement, version: str, extras: Iterable[str] = ()) -> bool:
    """Whether it counts on that Python, with these extras."""
    place = {"python_version": version, "python_full_version": f"{version}.0"}
    return one.marker is None or any(
        one.marker.evaluate({**place, "extra": extra}) for extra in ("", *extras)
    )


def _requirements(name: str, extras: Iterable[str], version: str) -> Iterator[Requirement]:
    for one in map(Requirement, requires(name) or ()):
        if _holds(one, version, extras):
            yield one


if __name__ == "__main__":
    main()

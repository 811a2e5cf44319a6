"""An environment for `make gpu` on a host with Python and no network.

    python3 benchmarks/gpu/bare.py [ARGUMENT ...]       make it, and run the checks with these
    python3 benchmarks/gpu/bare.py --rounds 200 [ARGUMENT ...]    benchmarks/gpu/rounds.py instead
    python3 benchmarks/gpu/bare.py --only-make

Needs the standard library alone. build/gpu/venv gets this tree, and foreign packages from three
places. First come the wheels in build/gpu-wheels (`make gpu-wheels` on a host with a network), then
.venv of `make setup`, then the Python that runs us. The shim and the recorder are compiled here.
Without a C compiler they come from build/gpu-wheels too; without both, all that needs no agent is
run. Jobs run on the Python that runs us: it has PyTorch. GPU_HOME names another place than
build/gpu.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import site
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HOME = Path(os.environ.get("GPU_HOME") or ROOT / "build" / "gpu")
WHEELS = ROOT / "build" / "gpu-wheels"
BUILT = WHEELS / "built"  # what is compiled, by its path in this tree
OLDEST = (3, 11)
EXTRAS = ("master", "agent")
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
PROGRAMS = {
    "dlq": "dlq_cli.main:main",
    "dlq-python": "dlq_cli.main:main",
    "dlq-master": "dlq_master.app:main",
    "dlq-nodeagent": "dlq_nodeagent.app:main",
}
SCRIPT = "#!{python}\nimport sys\nfrom {module} import {name}\nsys.exit({name}())\n"
VERSIONS = """
import json, sys
from importlib.metadata import PackageNotFoundError, version
def told(name):
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
print(json.dumps({name: told(name) for name in sys.argv[1:]}))
"""
# Imported at the start: it fails here, with the name of what is missing, and not in a daemon.
TRIAL = "import dlq_master.app, dlq_nodeagent.app, dlq_cli.main, hatch_build, numpy, pynvml"


def main() -> None:
    """Make it, compile, run."""
    if words := too_old(sys.version_info[:2]):
        sys.exit(words)
    # Only here: an older Python has no such module, and would not say what is wrong.
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    python = make(project, [unpacked(WHEELS, HOME / "site"), *_elsewhere()])
    compile_or_take(python)
    if sys.argv[1:] == ["--only-make"]:
        return
    named = [] if "--job-python" in sys.argv else ["--job-python", sys.executable]
    os.chdir(ROOT)
    module = "benchmarks.gpu.rounds" if "--rounds" in sys.argv else "benchmarks.gpu"
    os.execv(python, [str(python), "-m", module, *named, *sys.argv[1:]])


def too_old(version: tuple[int, ...]) -> str:
    """Why this Python cannot run dlq's daemons; empty: it can."""
    if version >= OLDEST:
        return ""
    oldest, this = (".".join(map(str, each)) for each in (OLDEST, version))
    return (
        f"Python {this} runs this, and dlq's daemons need {oldest} or newer. Name one by "
        "GPU_PYTHON=..., and the Python with PyTorch, which may be older, by GPU_JOB_PYTHON=..."
    )


def compile_or_take(python: Path, built: Path = BUILT, root: Path = ROOT) -> None:
    """Compile the shim and the recorder, or take those that came with the wheels."""
    compiler = any(map(shutil.which, ("cc", "gcc", "clang"))) or os.environ.get("CC")
    if compiler and not subprocess.run([python, "hatch_build.py"], cwd=root).returncode:
        return
    found = [path for path in sorted(built.rglob("*")) if path.is_file()]
    for path in found:
        target = root / path.relative_to(built)
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_name(f".{target.name}.{os.getpid()}")
        shutil.copy2(path, fresh)
        fresh.replace(target)  # one that runs keeps its file
    why = "they could not be compiled" if compiler else "there is no C compiler here"
    words = f"the shim and the recorder: {why}; {len(found)} files came from {built}"
    more = "" if found else ": checks that need an agent or the recorder cannot be made"
    print(words + more, file=sys.stderr)


def make(project: dict[str, Any], places: Sequence[Path]) -> Path:
    """The interpreter of the environment. Ends the program where packages are missing."""
    home = HOME / "venv"
    venv.create(home, clear=True, with_pip=False, symlinks=True)
    python = home / "bin" / "python"
    packages = home / "lib" / f"python{PYTHON}" / "site-packages"
    ours = [ROOT / name for name in project["tool"]["hatch"]["build"]["dev-mode-dirs"]]
    lines = [str(place) for place in [*ours, ROOT, *places]]
    (packages / "dlq-gpu.pth").write_text("\n".join(lines) + "\n")
    _register(project["project"], packages)
    for name, target in PROGRAMS.items():
        module, _, function = target.partition(":")
        script = home / "bin" / name
        script.write_text(SCRIPT.format(python=python, module=module, name=function))
        script.chmod(0o755)
    _refuse_what_is_missing(project["project"], python)
    return python


def unpacked(wheels: Path, to: Path) -> Path:
    """Unpack the wheels that fit this Python into one directory; it may stay empty."""
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    found = sorted(wheels.glob("*.whl"))
    fitting = [wheel for wheel in found if fits(wheel.name)]
    if found and not fitting:
        print(f"none of the wheels in {wheels} is for Python {PYTHON}", file=sys.stderr)
    for wheel in fitting:
        with zipfile.ZipFile(wheel) as file:
            file.extractall(to)
    return to


def fits(name: str, python: str = PYTHON) -> bool:
    """Whether a wheel is for this Python, by its name (PEP 427)."""
    *_, interpreter, abi, _platform = name.removesuffix(".whl").split("-")
    own = f"cp{python.replace('.', '')}"
    return own in interpreter.split(".") or abi == "abi3" or "py3" in interpreter.split(".")


def version_of(text: str) -> tuple[int, ...]:
    """The leading numbers of a version: enough to hold it against a floor."""
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def _elsewhere() -> Iterator[Path]:
    """Directories with packages of this Python: of `make setup`, and of the one that runs us."""
    yield ROOT / ".venv" / "lib" / f"python{PYTHON}" / "site-packages"
    for place in site.getsitepackages():
        yield Path(place)
    if site.ENABLE_USER_SITE:
        yield Path(site.getusersitepackages())


def _register(project: dict[str, Any], packages: Path) -> None:
    """Metadata of dlq: its version, and the commands that its rooms lend to the CLI."""
    where = packages / f"dlq-{project['version']}.dist-info"
    where.mkdir()
    (where / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: dlq\nVersion: {project['version']}\n"
    )
    groups = [
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in each.items())
        for group, each in project["entry-points"].items()
    ]
    (where / "entry_points.txt").write_text("\n".join(groups))


def _refuse_what_is_missing(project: dict[str, Any], python: Path) -> None:
    wanted = {}
    for requirement in (*project["dependencies"], *_of_extras(project)):
        name, floor = re.findall(r"^([A-Za-z0-9_.-]+)>=([0-9.]+)", requirement)[0]
        wanted[name] = floor
    said = subprocess.run(
        [python, "-c", VERSIONS, *wanted], stdout=subprocess.PIPE, text=True, check=True
    )
    here = json.loads(said.stdout)
    lacking = [
        f"{name} {floor} or newer ({here[name] or 'not here'})"
        for name, floor in wanted.items()
        if version_of(here[name]) < version_of(floor)
    ]
    tried = subprocess.run([python, "-c", TRIAL], cwd=ROOT, capture_output=True, text=True)
    if tried.returncode and not lacking:
        lacking = [tried.stderr.strip().splitlines()[-1]]
    if lacking:
        sys.exit(
            f"Python {PYTHON} lacks: {', '.join(lacking)}.\nOn a host with a network run "
            f"`make gpu-wheels FOR={PYTHON}`, and copy build/gpu-wheels to the same place here."
        )


def _of_extras(project: dict[str, Any]) -> Iterator[str]:
    for extra in EXTRAS:
        yield from project["optional-dependencies"][extra]


if __name__ == "__main__":
    main()

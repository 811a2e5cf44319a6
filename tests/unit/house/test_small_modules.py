"""No folder holds more than 15 modules, and no module is under 40 lines without a reason."""

from collections import Counter
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PRODUCT = (
    "common",
    "client",
    "broker",
    "cli",
    "master",
    "nodeagent",
    "profiler",
    "simulator",
    "web",
    "notify",
)
MOST_MODULES = 15
FEWEST_LINES = 40
# Why a module may be short: what it holds is a whole of its own.
REASONS = {
    "one table of the store": ("store/stored_tables.py",),
    "one command of the CLI": ("dlq_cli/commands/*/*.py",),
    "one slice of the master's state": ("control/*/state.py",),
    "one part of a job's field table": ("dlq_common/job_fields/*/*.py",),
    "one service of the client": ("dlq_client/[a-z]*.py",),
    "one rule that a preset names": (
        "policy/order/*.py",
        "policy/place/*.py",
        "policy/place/whole/*.py",
        "policy/size/*.py",
        "policy/priced/names.py",
    ),
    "one provider of machines": ("dlq_master/providers/*.py",),
    "a process begins here": ("*/app.py", "*/__main__.py", "hook/sitecustomize.py"),
    "the options of one of Slurm's programs": ("dlq_cli/slurm/*/grammar.py",),
    "one kind of stimulus": (
        "control/deadlines/progress.py",
        "control/trials/resume_times.py",
    ),
    "one decision": (
        "dlq_profiler/identity.py",
        "devices/gpu_type.py",
    ),
    "one touch of the machine": (
        "control/loop/preload.py",
        "planner/modest.py",
        "dlq_cli/slurm/jobs/origin.py",
        "dlq_nodeagent/quiet.py",
        "control/stimuli/audit_note.py",
    ),
    "a value that many rooms share": ("dlq_master/model/*",),
    "a helper that many rooms share": (
        "dlq_common/text/*.py",
        "dlq_common/live_resize.py",
        "dlq_cli/output/*.py",
        "dlq_cli/jobs/source.py",
        "dlq_cli/lists/states.py",
        "dlq_cli/patience.py",
        "dlq_cli/spec/*.py",
        "dlq_compat/*.py",
        "dlq_train/*.py",
        "dlq_master/rpc/calls/*.py",
        "policy/trial/rules.py",
        "policy/elsewhere.py",
        "dlq_nodeagent/model/*.py",
    ),
}


@cache
def modules() -> dict[Path, int]:
    """The lines of each module that people write; a package's contract is not one."""
    return {
        path.relative_to(ROOT): path.read_text().count("\n")
        for part in PRODUCT
        for path in sorted((ROOT / part).rglob("*.py"))
        if "gen" not in path.parts and path.name != "__init__.py"
    }


def test_no_folder_holds_too_many_modules() -> None:
    counts = Counter(path.parent for path in modules())
    assert {str(at): many for at, many in counts.items() if many > MOST_MODULES} == {}


def test_the_page_of_the_benchmarks_tells_each_room_and_none_is_crowded() -> None:
    home = ROOT / "benchmarks"
    paths = [path.relative_to(home) for path in home.rglob("*.py") if path.name != "__init__.py"]
    counts = Counter(path.parent for path in paths)
    assert {str(at): many for at, many in counts.items() if many > MOST_MODULES} == {}
    page = (home / "README.md").read_text()
    assert [str(at) for at in counts if str(at) != "." and f"`{at}/`" not in page] == []


def test_a_short_module_has_a_reason() -> None:
    allowed = [pattern for patterns in REASONS.values() for pattern in patterns]
    short = [
        str(path)
        for path, lines in modules().items()
        if lines < FEWEST_LINES
        and not any(fnmatch(str(path), f"*{pattern}") for pattern in allowed)
    ]
    assert short == []


@pytest.mark.parametrize("pattern", [one for each in REASONS.values() for one in each])
def test_a_reason_is_needed(pattern: str) -> None:
    short = (path for path, lines in modules().items() if lines < FEWEST_LINES)
    assert any(fnmatch(str(path), f"*{pattern}") for path in short)

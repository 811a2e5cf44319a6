"""The project file and the lock: floors, hashes, no package server, and a reason for each guest."""

import importlib.metadata
import re
import tomllib
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

import dlq.v1
import dlq_common

ROOT = Path(__file__).resolve().parents[3]
GUESTS = (ROOT / "docs/internals/adr/0009-dependencies.md").read_text()


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def lock() -> str:
    return (ROOT / "requirements.lock").read_text()


def canonical(requirement: str) -> str:
    name = re.split(r"[<>=!~ ;\[]", requirement, maxsplit=1)[0]
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements(project: dict[str, Any]) -> list[str]:
    table = project["project"]
    return [*table["dependencies"], *chain.from_iterable(table["optional-dependencies"].values())]


def version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def test_the_lock_names_no_package_server(lock: str) -> None:
    assert not re.search(r"https?://|file://|--(extra-)?index-url|--find-links", lock)


def test_every_pin_has_a_hash(lock: str) -> None:
    pins = re.split(r"\n(?=[a-zA-Z0-9])", "\n" + re.sub(r"(?m)^ *#.*\n", "", lock))[1:]
    assert len(pins) > 40
    assert [
        pin.splitlines()[0] for pin in pins if "==" not in pin or "--hash=sha256:" not in pin
    ] == []


def test_everything_the_project_asks_for_is_in_the_lock(project: dict[str, Any], lock: str) -> None:
    pinned = {canonical(line) for line in lock.splitlines() if re.match(r"[a-zA-Z0-9]", line)}
    asked = [*requirements(project), *chain.from_iterable(project["dependency-groups"].values())]
    assert {canonical(requirement) for requirement in asked} <= pinned


def test_all_is_what_one_machine_needs(project: dict[str, Any]) -> None:
    extras = project["project"]["optional-dependencies"]
    wanted = chain.from_iterable(extras[name] for name in ("master", "agent", "web", "notify"))
    assert extras["all"] == [*dict.fromkeys(wanted)]


def test_torch_is_no_dependency(lock: str) -> None:
    assert not re.search(r"(?m)^(torch|nvidia-cu|triton)", lock)


def test_the_floor_of_grpc_is_the_version_that_generated_the_stubs(project: dict[str, Any]) -> None:
    tools = next(r for r in project["dependency-groups"]["proto"] if r.startswith("grpcio-tools"))
    generator = version(tools.partition("==")[2])
    floors = {canonical(r): r.partition(">=")[2] for r in requirements(project)}
    assert version(floors["grpcio"]) >= generator
    assert version(floors["grpcio-status"]) >= generator
    generated = next(Path(dlq.v1.__path__[0]).glob("*_pb2.py")).read_text()
    protobuf = re.search(r"Protobuf Python Version: ([0-9.]+)", generated)
    assert protobuf is not None
    assert version(floors["protobuf"]) >= version(protobuf[1])


def test_every_dependency_has_its_line_in_the_decision(project: dict[str, Any]) -> None:
    words = {canonical(word) for word in re.findall(r"[A-Za-z][\w-]*", GUESTS)}
    missing = {canonical(requirement) for requirement in requirements(project)} - words
    assert missing == set()


def test_every_package_in_the_wheel_is_seen_by_the_other_tools(project: dict[str, Any]) -> None:
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert {Path(path).name for path in packages} == set(
        project["tool"]["importlinter"]["root_packages"]
    )
    assert {str(Path(path).parent) for path in packages} == set(
        project["tool"]["hatch"]["build"]["dev-mode-dirs"]
    )
    assert all((ROOT / path / "__init__.py").is_file() for path in packages)
    assert [path for path in packages if not (ROOT / path / "py.typed").is_file()] == []


def test_the_page_of_the_package_has_no_relative_link(project: dict[str, Any]) -> None:
    text = importlib.metadata.metadata("dlq").json["description"]
    assert isinstance(text, str)
    targets = [target for target in re.findall(r"\]\(([^)]+)\)", text) if target[0] != "#"]
    source = project["project"]["urls"]["Source"]
    assert len(targets) > 10
    assert [target for target in targets if not target.startswith((f"{source}/", "http"))] == []
    assert project["project"]["urls"]["Changelog"].startswith(f"{source}/")


def test_what_every_room_shares_is_a_closed_list() -> None:
    listed = re.findall(r"(?m)^    (\w+)  +\S", dlq_common.__doc__ or "")
    room = Path(dlq_common.__path__[0])
    present = {path.stem for path in room.glob("*.py")} - {"__init__"}
    present |= {path.parent.name for path in room.glob("*/__init__.py")}
    assert set(listed) == present

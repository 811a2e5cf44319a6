"""Each room imports only what its own install brings, and every guest that is installed is used."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PROVIDERS: Mapping[str, list[str]] = packages_distributions()
ROOMS = {
    "cli/dlq_cli": "",
    "client/dlq_client": "",
    "client/dlq_train": "",
    "client/dlq_compat": "",
    "client/dlq_api": "submitit",
    "master/dlq_master": "master",
    "nodeagent/dlq_nodeagent": "agent",
    "simulator/dlq_simulator": "sim",
    "profiler/dlq_profiler": "profile",
}


# A check of nodes uses it where the site has installed it. Without it the check uses numpy.
OF_THE_SITE = {"nodeagent/dlq_nodeagent/checks": {"torch"}}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[<>=!~ ;\[]", name, maxsplit=1)[0]).lower()


def brought_by(extra: str) -> set[str]:
    """The distributions that `pip install dlq[extra]` names."""
    more = PROJECT["optional-dependencies"][extra] if extra else []
    return {canonical(requirement) for requirement in [*PROJECT["dependencies"], *more]}


def guests_of(package: str) -> Iterator[tuple[str, set[str]]]:
    """Each foreign module that a package's files import, and the distributions that provide it."""
    for path in sorted((ROOT / package).rglob("*.py")):
        for module in imported(path):
            top = module.partition(".")[0]
            if top not in sys.stdlib_module_names and not top.startswith("dlq"):
                providers = {canonical(name) for name in PROVIDERS.get(top, [top])}
                yield f"{path.relative_to(ROOT)}: {module}", providers


@cache
def imported(path: Path) -> tuple[str, ...]:
    """What a file imports, be it by `import_module("...")`."""
    text = path.read_text()
    tree = ast.parse(text)
    return tuple(named(ast.walk(tree) if "import_module" in text else statements(tree)))


def statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Every statement, also those in others, but no expression."""
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        yield node
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            left += getattr(node, field, ())


def named(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Call) and called(node.func) == "import_module":
            yield from (
                arg.value
                for arg in node.args
                if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
            )


def called(function: ast.expr) -> str:
    """`name` of name() and of any.name()."""
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


@pytest.mark.parametrize(("package", "extra"), ROOMS.items(), ids=list(ROOMS))
def test_a_room_imports_only_what_its_install_brings(package: str, extra: str) -> None:
    allowed = brought_by(extra) | (brought_by("pair") if extra == "master" else set())
    strangers = [where for where, providers in guests_of(package) if not providers & allowed]
    of_the_site = [
        where
        for where in strangers
        for folder, names in OF_THE_SITE.items()
        if where.startswith(f"{folder}/") and where.split(": ")[1].partition(".")[0] in names
    ]
    assert [where for where in strangers if where not in of_the_site] == []


def test_what_is_shared_imports_what_the_base_or_both_daemons_bring() -> None:
    allowed = brought_by("") | (brought_by("master") & brought_by("agent"))
    found = guests_of("common/dlq_common")
    assert [where for where, providers in found if not providers & allowed] == []


def test_every_dependency_is_used_by_a_room_that_has_it() -> None:
    used = {
        extra: {name for package in packages for _, names in guests_of(package) for name in names}
        for extra, packages in {
            # The simulator runs the core, and replays with the base install.
            "": [
                *("cli/dlq_cli", "client/dlq_client", "common/dlq_common", "proto/gen/dlq"),
                *("master/dlq_master/model", "master/dlq_master/policy"),
            ],
            "master": ["master/dlq_master", "common/dlq_common"],
            # It starts the analysis of what ranks recorded.
            "agent": ["nodeagent/dlq_nodeagent", "common/dlq_common", "profiler/dlq_profiler"],
            "sim": ["simulator/dlq_simulator", "master/dlq_master/model"],
            "profile": ["profiler/dlq_profiler"],
            "pair": ["master/dlq_master/store/postgres"],
        }.items()
    }
    idle = {
        extra: sorted(brought_by(extra) - (brought_by("") if extra else set()) - used[extra])
        for extra in used
    }
    assert {extra: names for extra, names in idle.items() if names} == {}

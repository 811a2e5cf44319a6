"""No module imports itself through others, in no room of no program.

import-linter holds whole rooms to that (`No circles` in pyproject.toml). The rooms of the master's
`control` share one state, so they import each other; here each single module is held to it.
"""

from graphlib import TopologicalSorter

import grimp
import pytest

PROGRAMS = (
    "dlq_cli",
    "dlq_client",
    "dlq_common",
    "dlq_compat",
    "dlq_master",
    "dlq_nodeagent",
    "dlq_profiler",
    "dlq_simulator",
    "dlq_train",
)


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_module_imports_itself_through_others(program: str) -> None:
    graph = grimp.build_graph(program, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(imports) > 3
    TopologicalSorter(imports).prepare()  # raises CycleError, which names the circle

"""No module imports itself through others, in no room of no program.

import-linter holds whole rooms to that (`No circles` in pyproject.toml); here each single module is
held to it. A turn of the master's loop imports two classes for their types alone.
"""

from graphlib import TopologicalSorter

import grimp
import pytest

TURN = "dlq_master.control.loop.turn"
TYPES_ONLY = {
    (TURN, "dlq_master.control.composition.state"),
    (TURN, "dlq_master.control.read_model.published"),
}
PROGRAMS = (
    "dlq_api",
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
    imports = {
        module: {
            other
            for other in graph.find_modules_directly_imported_by(module)
            if (module, other) not in TYPES_ONLY
        }
        for module in graph.modules
    }
    assert len(imports) > 3
    TopologicalSorter(imports).prepare()  # raises CycleError, which names the circle

"""The library as `make setup` built it, and one build of each program for all tests of a worker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import hatch_build
import pytest

from support.watched_programs import ROOT, Profiling, compile_program


@pytest.fixture(scope="session")
def library() -> Path:
    built = ROOT / hatch_build.PROFILER_LIBRARIES / hatch_build.PRELOAD_NAME
    assert built.exists(), "not built: make setup"
    return built


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    where = tmp_path_factory.mktemp("programs")
    built: dict[str, Path] = {}

    def of(source: str) -> Path:
        if source not in built:
            built[source] = compile_program(where, source)
        return built[source]

    return of


@pytest.fixture
def profiling(library: Path, tmp_path: Path) -> Profiling:
    return Profiling(library, tmp_path / "recorded")

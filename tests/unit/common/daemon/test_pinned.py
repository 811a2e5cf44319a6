"""A pinned package is imported as it was, or not at all."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlq_common.daemon.pinned import PackageChanged, pin

NAME = "pinned_trial"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Three modules, and this process pinned to them."""
    made = tmp_path / NAME
    made.mkdir()
    for name in ("__init__", "first", "second", "third"):
        (made / f"{name}.py").write_text(f"told = {name!r}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    pin([NAME])
    yield made
    for name in [name for name in sys.modules if name.partition(".")[0] == NAME]:
        del sys.modules[name]


def test_what_is_as_it_was_is_imported(package: Path) -> None:
    assert importlib.import_module(f"{NAME}.first").told == "first"


def test_what_was_replaced_or_came_later_is_refused_with_a_remedy(package: Path) -> None:
    importlib.import_module(f"{NAME}.first")
    newer = package / "second.new"
    newer.write_text("told = 'newer'\n")
    newer.replace(package / "second.py")
    (package / "third.py").write_text("told = 'wrote'\n")
    (package / "later.py").write_text("told = 'later'\n")
    importlib.invalidate_caches()
    for name in ("second", "third", "later"):
        with pytest.raises(PackageChanged, match=rf"{name}\.py has changed .* restart the daemon"):
            importlib.import_module(f"{NAME}.{name}")
    assert importlib.import_module(f"{NAME}.first").told == "first"


def test_a_module_that_is_not_there_is_said_to_be_missing(package: Path) -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"{NAME}.nowhere")


def test_other_packages_are_no_business_of_it(package: Path, tmp_path: Path) -> None:
    (tmp_path / "stranger_of_pinned.py").write_text("told = 1\n")
    importlib.invalidate_caches()
    assert importlib.import_module("stranger_of_pinned").told == 1
    del sys.modules["stranger_of_pinned"]

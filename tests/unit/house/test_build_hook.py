"""The build hook: a shim where there is a compiler, a pure wheel and a word where there is none."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import hatch_build
import pytest
from hatchling.bridge.app import Application

WORKS = "int main(void) { return 7; }\n"


class HeardApplication(Application):
    """Keeps what the hook had to say."""

    def __init__(self) -> None:
        super().__init__()
        self.warnings: list[str] = []

    def display_warning(self, message: str = "", **_: Any) -> None:
        self.warnings.append(message)


def a_tree(tmp_path: Path, source: str = WORKS) -> Path:
    shim_dir = tmp_path / hatch_build.SHIM_DIR
    shim_dir.mkdir(parents=True)
    (shim_dir / "main.c").write_text(source)
    return tmp_path


def build(root: Path, version: str = "standard") -> tuple[dict[str, Any], HeardApplication]:
    app = HeardApplication()
    data: dict[str, Any] = {"pure_python": True, "force_include": {}}
    hook = hatch_build.ShimBuildHook(str(root), {}, None, None, str(root), "wheel", app)  # type: ignore[arg-type]
    hook.initialize(version, data)
    return data, app


@pytest.fixture
def _no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "/nonexistent/cc")


def test_all_sources_become_one_executable(tmp_path: Path) -> None:
    root = a_tree(tmp_path, "int answer(void); int main(void) { return answer(); }\n")
    (root / hatch_build.SHIM_DIR / "more.c").write_text(
        "int answer(void); int answer(void) { return 42; }\n"
    )
    shim = hatch_build.compile_shim(root)
    assert shim is not None
    assert subprocess.run([shim], check=False).returncode == 42
    assert sorted(path.name for path in shim.parent.iterdir()) == ["dlq-shim", "main.c", "more.c"]


def test_the_wheel_carries_the_shim_and_names_its_platform(tmp_path: Path) -> None:
    data, app = build(a_tree(tmp_path))
    assert data["pure_python"] is False
    assert re.fullmatch(r"py3-none-manylinux_\d+_\d+_\w+", data["tag"])
    assert list(data["force_include"].values()) == ["dlq_nodeagent/shim/dlq-shim"]
    assert app.warnings == []


def test_the_tag_names_the_newest_glibc_that_a_built_file_asks_for(tmp_path: Path) -> None:
    older, newer, without = (tmp_path / name for name in ("older", "newer", "static"))
    older.write_bytes(b"\0GLIBC_2.9\0GLIBC_2.17\0")
    newer.write_bytes(b"\0GLIBC_2.34\0GLIBC_PRIVATE\0")
    without.write_bytes(b"a static program")
    assert "-manylinux_2_34_" in hatch_build.wheel_tag([older, newer, without])
    assert "-manylinux_2_17_" in hatch_build.wheel_tag([older])
    assert "-linux_" in hatch_build.wheel_tag([without])


def test_the_wheel_carries_what_starts_several_tasks(tmp_path: Path) -> None:
    root = a_tree(tmp_path)
    folders = ("tasks", "output", "stdin")
    for folder in folders:
        (root / hatch_build.SHIM_DIR / folder).mkdir()
        (root / hatch_build.SHIM_DIR / folder / f"{folder}.c").write_text(WORKS)
    data, _ = build(root)
    wanted = {f"dlq_nodeagent/shim/dlq-{folder}" for folder in folders}
    assert wanted <= set(data["force_include"].values())


def test_an_editable_install_compiles_in_place_and_stays_pure(tmp_path: Path) -> None:
    data, _ = build(a_tree(tmp_path), version="editable")
    assert data == {"pure_python": True, "force_include": {}}
    assert os.access(tmp_path / hatch_build.SHIM_DIR / hatch_build.SHIM_NAME, os.X_OK)


@pytest.mark.usefixtures("_no_compiler")
def test_without_a_compiler_the_wheel_is_pure_and_says_what_it_lacks(tmp_path: Path) -> None:
    data, app = build(a_tree(tmp_path))
    assert data == {"pure_python": True, "force_include": {}}
    assert len(app.warnings) == 1
    assert "dlq-nodeagent will refuse to start" in app.warnings[0]


def test_a_source_that_does_not_compile_fails_the_build_and_keeps_the_old_shim(
    tmp_path: Path,
) -> None:
    root = a_tree(tmp_path)
    shim = hatch_build.compile_shim(root)
    assert shim is not None
    old = shim.read_bytes()
    (shim.parent / "main.c").write_text("this is not C\n")
    with pytest.raises(subprocess.CalledProcessError):
        hatch_build.compile_shim(root)
    assert shim.read_bytes() == old
    assert sorted(path.name for path in shim.parent.iterdir()) == ["dlq-shim", "main.c"]


def test_a_shim_that_runs_is_replaced_and_not_overwritten(tmp_path: Path) -> None:
    root = a_tree(tmp_path)
    shim = hatch_build.compile_shim(root)
    assert shim is not None
    before = shim.stat().st_ino
    with shim.open("rb"):
        assert hatch_build.compile_shim(root) == shim
        assert shim.stat().st_ino != before

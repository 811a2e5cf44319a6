"""How the libraries are built: by both compilers without a warning, and so that they start
anywhere.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import hatch_build
import pytest

from dlq_profiler.records import layout
from support.watched_programs import PROGRAMS, ROOT, compile_library, compile_program, have, run


@pytest.mark.profiler
@pytest.mark.parametrize("name", hatch_build.PROFILER_PARTS)
@pytest.mark.parametrize("compiler", ["gcc", "clang", "aarch64-linux-gnu-gcc"])
def test_no_warning_no_library_and_nothing_that_must_be_there(
    tmp_path: Path, compiler: str, name: str
) -> None:
    if not have(compiler):
        pytest.skip(f"no {compiler} here")
    library = compile_library(tmp_path, name=name, compiler=compiler)
    assert _needed(library) == []
    assert _undefined(library) == []


def test_the_built_libraries_need_nothing() -> None:
    for name in hatch_build.PROFILER_PARTS:
        library = ROOT / hatch_build.PROFILER_LIBRARIES / name
        assert _needed(library) == []
        assert _undefined(library) == []


def _needed(library: Path) -> list[str]:
    """What the loader would have to find."""
    told = subprocess.run(["readelf", "-dW", library], capture_output=True, text=True, check=True)
    return [line for line in told.stdout.splitlines() if "NEEDED" in line]


def _undefined(library: Path) -> list[str]:
    """Symbols without which the loader would refuse a program: all but weak ones, and its own."""
    told = subprocess.run(["nm", "-D", library], capture_output=True, text=True, check=True)
    needed = [line.split()[-1] for line in told.stdout.splitlines() if line.split()[-2] == "U"]
    return [name for name in needed if name != "__tls_get_addr"]


def test_header_and_reader_agree(tmp_path: Path) -> None:
    """Offset and size of every field, as a C compiler lays them out."""
    kinds = {
        "header": layout.HEADER,
        "thread": layout.THREAD,
        "conn": layout.CONN,
        "record": layout.RECORD,
    }
    lines, expected = [], []
    for struct, kind in kinds.items():
        for name in kind.names or ():
            field = kind.fields[name] if kind.fields else None
            assert field is not None
            expected.append(f"{struct} {name} {field[1]} {field[0].itemsize}")
            lines.append(f"FIELD({struct}, {name})")
    source = tmp_path / "offsets.c"
    source.write_text(
        "#include <stddef.h>\n#include <stdio.h>\n"
        f'#include "{PROGRAMS.parent}/include/dlqprof.h"\n'
        "#define S(s) struct dlqprof_##s\n"
        '#define FIELD(s, f) printf(#s " " #f " %zu %zu\\n", offsetof(S(s), f), sizeof(((S(s) '
        "*)0)->f));\n"
        "int main(void)\n{\n" + "\n".join(lines) + "\n    return 0;\n}\n"
    )
    told = run(compile_program(tmp_path, str(source))).stdout.splitlines()
    assert told == expected


def test_every_hooked_name_stands_in_the_documentation() -> None:
    """docs/sites/profiler-recording.md lists the exports of the library, no more and no less."""
    library = ROOT / hatch_build.PROFILER_LIBRARIES / hatch_build.PRELOAD_NAME
    told = subprocess.run(
        ["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True
    )
    exported = {line.split()[-1] for line in told.stdout.splitlines()}
    text = (ROOT / "docs" / "sites" / "profiler-recording.md").read_text()
    section = re.search(r"## What is watched\n(.*?)\n## ", text, re.DOTALL)
    assert section is not None
    assert exported == set(re.findall(r"`(\w+)`", section[1]))

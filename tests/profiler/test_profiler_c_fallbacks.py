"""Programs that cannot be watched run exactly as without us, and the reason has a name."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_profiler.capabilities import BLIND, SENTENCES, why_unwatched, why_unwatched_process
from dlq_profiler.records.layout import Unseen
from dlq_profiler.results import TrafficReason as Why
from support.watched_programs import Profiling, compile_program, have, run

Program = Callable[[str], Path]


def _why(program: Path | str, **environ: str) -> tuple[Why, ...]:
    return why_unwatched(str(program), {"PATH": os.environ["PATH"], **environ})


def test_an_ordinary_program_has_no_reason(program: Program) -> None:
    assert _why(program("calls.c")) == ()
    assert _why("python3") == ()


def test_a_musl_program_is_watched(tmp_path: Path) -> None:
    if not have("musl-gcc"):
        pytest.skip("no musl-gcc here")
    assert _why(compile_program(tmp_path, "calls.c", compiler="musl-gcc")) == ()


def test_static(profiling: Profiling, tmp_path: Path) -> None:
    static = compile_program(tmp_path, "calls.c", flags=["-static"])
    assert profiling.run(static) == run(static)
    assert profiling.recordings() == []
    assert _why(static) == (Why.STATIC,)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a setuid program")
def test_setuid(profiling: Profiling, tmp_path: Path) -> None:
    """Run by somebody else, the loader is deaf to LD_PRELOAD."""
    setuid = compile_program(tmp_path, "calls.c")
    setuid.chmod(0o4755)
    for directory in (*tmp_path.parents[:3], tmp_path):
        directory.chmod(directory.stat().st_mode | 0o055)
    profiling.directory.chmod(0o777)
    (profiling.directory / "control").chmod(0o666)
    as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    assert profiling.run(*as_nobody, setuid).stdout == run(setuid).stdout
    assert profiling.recordings() == []
    assert _why(setuid) == (Why.SETUID,)


def test_io_uring(profiling: Profiling, tmp_path: Path) -> None:
    stub = ["-DSTUB", "-shared", "-fPIC", "-Wl,-soname,liburing.so.2"]
    compile_program(tmp_path, "uring.c", flags=stub, name="liburing.so.2")
    program = compile_program(tmp_path, "uring.c", flags=[f"-L{tmp_path}", "-l:liburing.so.2"])
    profiling.environment["LD_LIBRARY_PATH"] = str(tmp_path)
    assert profiling.run(program).stdout == "0\n"
    assert profiling.recording().unseen == Unseen.IO_URING
    assert _why(program) == (Why.IO_URING,)
    assert Why.IO_URING not in BLIND  # what goes the other way is seen


def test_mlx5_direct_verbs(profiling: Profiling, tmp_path: Path) -> None:
    stub = ["-DSTUB", "-shared", "-fPIC", "-Wl,-soname,libmlx5.so.1"]
    compile_program(tmp_path, "mlx5.c", flags=stub, name="libmlx5.so.1")
    program = compile_program(tmp_path, "mlx5.c", flags=[f"-L{tmp_path}", "-l:libmlx5.so.1"])
    profiling.environment["LD_LIBRARY_PATH"] = str(tmp_path)
    assert profiling.run(program).stdout == "7 1\n"
    assert profiling.recording().unseen == Unseen.MLX5_DIRECT | Unseen.MLX5_DEVX


def test_a_running_process_with_an_io_uring() -> None:
    parameters = (ctypes.c_char * 120)()
    libc = ctypes.CDLL(None, use_errno=True)
    ring = libc.syscall(425, 4, parameters)  # io_uring_setup
    if ring < 0:
        pytest.skip("no io_uring here")
    try:
        assert why_unwatched_process(os.getpid()) == (Why.IO_URING,)
    finally:
        os.close(ring)
    assert why_unwatched_process(os.getpid()) == ()


def test_go(tmp_path: Path) -> None:
    source = tmp_path / "go.c"
    source.write_text(
        'char info[] __attribute__((section(".go.buildinfo"))) = "x";\n'
        "int main(void)\n{\n    return info[0] == 0;\n}\n"
    )
    assert _why(compile_program(tmp_path, str(source))) == (Why.GO,)


def test_another_machine(program: Program, tmp_path: Path) -> None:
    whole = program("calls.c").read_bytes()
    for name, byte, value in (("32-bit", 4, 1), ("big-endian", 5, 2), ("sparc", 18, 43)):
        other = tmp_path / name
        other.write_bytes(whole[:byte] + bytes([value]) + whole[byte + 1 :])
        assert _why(other) == (Why.OTHER_MACHINE,), name


def test_a_script_is_what_runs_it(program: Program, tmp_path: Path) -> None:
    static = compile_program(tmp_path, "calls.c", flags=["-static"], name="static")
    script, inner = tmp_path / "script", tmp_path / "inner"
    inner.write_text(f"#!{static} -x\n")
    inner.chmod(0o755)
    script.write_text(f"#!{inner}\n")
    assert _why(script) == (Why.STATIC,)
    script.write_text("#!/usr/bin/env -S python3 -u\nprint()\n")
    assert _why(script) == ()
    script.write_text("#!/no/such/program\n")
    assert _why(script) == (Why.NOT_FOUND,)


@pytest.mark.parametrize(
    "content", [b"", b"#!", b"hello\n", b"\x7fELF", b"\x7fELF\2\1" + b"\xff" * 90]
)
def test_no_program_at_all(tmp_path: Path, content: bytes) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(content)
    (reason,) = _why(broken)
    assert reason in {Why.NOT_A_PROGRAM, Why.OTHER_MACHINE}
    assert _why(tmp_path / "nothing") == (Why.NOT_FOUND,)


@given(places=st.lists(st.tuples(st.integers(0, 1023), st.integers(0, 255)), max_size=12))
def test_a_damaged_program_is_judged_and_nothing_more(places: list[tuple[int, int]]) -> None:
    whole = bytearray(Path(sys.executable).resolve().read_bytes())
    for at, value in places:
        whole[at] = value
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        file.write(whole[:65536])
        file.flush()
        assert set(_why(file.name)) <= set(SENTENCES)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_a_program_that_may_only_be_run(tmp_path: Path) -> None:
    for directory in (*tmp_path.parents[:3], tmp_path):
        directory.chmod(directory.stat().st_mode | 0o055)
    secret = Path(shutil.copy("/bin/true", tmp_path / "secret"))
    secret.chmod(0o711)
    os.seteuid(65534)
    try:
        assert _why(secret) == (Why.UNREADABLE,)
    finally:
        os.seteuid(0)


def test_the_plugin_slot(program: Program) -> None:
    calls = program("calls.c")
    assert _why(calls, NCCL_PROFILER_PLUGIN="/usr/lib/libinspector.so") == (Why.PLUGIN_TAKEN,)
    assert _why(calls, NCCL_PROFILER_PLUGIN="none") == (Why.PLUGIN_OFF,)
    assert _why(calls, NCCL_PROFILER_PLUGIN="/x/libnccl-profiler-dlq.so") == ()


def test_every_reason_has_a_sentence() -> None:
    assert all(SENTENCES[reason] for reason in SENTENCES)


def test_a_shell_of_many_tools(profiling: Profiling) -> None:
    """What a job's start script does: pipes, redirections, background jobs, here documents."""
    script = (
        "set -e; x=$(echo hello | tr a-z A-Z); echo $x > /dev/null; (sleep 0 & wait);"
        "cat <<E | wc -c\nabc\nE\nexec 5>&1; echo five >&5; exec 5>&-; false || echo $?"
    )
    for shell in ("sh", "bash"):
        assert profiling.run(shell, "-c", script) == run(shell, "-c", script)
    assert profiling.recordings() == []

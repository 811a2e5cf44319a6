"""The shim compiled strictly, and run under the sanitizers with good and with broken plans."""

import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlq_nodeagent.model.port import ExitWhy
from dlq_nodeagent.runtimes.process import layout, planfile, shim_process
from dlq_nodeagent.shim.binary import ShimMissing, ensure_shim, shim_path
from support.process_box import ProcessBox, process_box

SOURCES = sorted(shim_path().parent.glob("*.c"))
STRICT = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror"]
SANITIZED = ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shim that writes what the sanitizers find beside itself: its own stderr is /dev/null."""
    at = tmp_path_factory.mktemp("sanitized")
    (at / "options.c").write_text(
        "const char *__asan_default_options(void);\n"
        "const char *__asan_default_options(void)\n"
        f'{{ return "log_path={at}/found:detect_leaks=0:handle_abort=1"; }}\n'
        "const char *__ubsan_default_options(void);\n"
        "const char *__ubsan_default_options(void)\n"
        f'{{ return "log_path={at}/found"; }}\n'
    )
    shim = at / "dlq-shim"
    sources = [str(path) for path in (*SOURCES, at / "options.c")]
    subprocess.run(["cc", *STRICT, *SANITIZED, "-o", str(shim), *sources], check=True)
    return shim


@pytest.fixture
def box(sanitized: Path, tmp_path: Path) -> Iterator[ProcessBox]:
    with process_box(tmp_path / "state", shim=sanitized) as made:
        yield made
    found = sorted(sanitized.parent.glob("found*"))
    assert [path.read_text() for path in found] == []


@needs_compiler
def test_one_command_compiles_the_shim_without_a_warning(tmp_path: Path) -> None:
    target = tmp_path / "dlq-shim"
    command = ["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(target)]
    subprocess.run([*command, *map(str, SOURCES)], check=True)
    said = subprocess.run([str(target), "--version"], check=True, capture_output=True, text=True)
    assert said.stdout == "dlq-shim 1\n"


@pytest.mark.long("contract/test_runtime.py")
@needs_compiler
def test_the_sanitizers_find_nothing_in_a_whole_life(box: ProcessBox) -> None:
    spare = box.sh("echo a; (sleep 1000 &); exit 3", log_head_bytes=1)
    assert box.wait_exit(spare).code == 3
    for script in ("kill -9 $$", "head -c 300000 /dev/zero", "echo $PATH >&2"):
        box.wait_exit(box.sh(script, log_head_bytes=100, log_ring_bytes=4096))
    assert box.wait_exit(box.run("/no/such/file")).why is ExitWhy.START_ERROR
    assert box.wait_exit(box.sh("true", cwd="/no")).why is ExitWhy.START_ERROR


@pytest.mark.long("contract/test_runtime.py", "unit/nodeagent/shim/test_shim_commands.py")
@needs_compiler
def test_the_sanitizers_find_nothing_in_commands_and_holds(box: ProcessBox) -> None:
    deaf = box.sh("trap '' TERM USR1; echo ready; while :; do sleep 1; done")
    box.wait_log(deaf, b"ready")
    box.runtime.signal(deaf, 10, epoch=6)
    box.runtime.stop(deaf, epoch=6, signal=15, grace_s=0.2, term_s=0.1)
    assert box.wait_exit(deaf).why is ExitWhy.STOPPED
    held = box.sh("trap '' TERM; while :; do sleep 1; done", hold_s=1, grace_s=0.3)
    ctl = os.open(box.path(held) / "ctl", os.O_WRONLY | os.O_NONBLOCK)
    os.write(ctl, random.Random(7).randbytes(4000) + b"\n1 5 1 stop 1 2 3 4 5 6 7 8 9\n")
    os.close(ctl)
    assert box.wait_exit(held).why is ExitWhy.HOLD_EXPIRED


@needs_compiler
@pytest.mark.parametrize("seed", range(0, 60, 5))
def test_a_broken_plan_is_refused(tmp_path: Path, seed: int) -> None:
    with process_box(tmp_path / "state") as box:
        refuse_a_broken_plan(box, seed)


@pytest.mark.long("unit/nodeagent/shim/test_shim_build.py::test_a_broken_plan_is_refused")
@needs_compiler
@pytest.mark.parametrize("seed", range(60))
def test_the_sanitizers_find_nothing_in_a_broken_plan(box: ProcessBox, seed: int) -> None:
    refuse_a_broken_plan(box, seed)


def refuse_a_broken_plan(box: ProcessBox, seed: int) -> None:
    """Damages a plan at random. The shim says that it cannot start it, and ends without a fault."""
    chance = random.Random(seed)
    plan = box.plan("/bin/true", "x" * 200, groups=(1, 2, 3))
    good = planfile.encode(plan, (), box.state_dir / "contact")
    at = chance.randrange(len(good))
    broken = chance.choice(
        [
            good[:at],
            good[:at] + chance.randbytes(8) + good[at + 8 :],
            good[:at] + good[at + chance.randrange(1, 20) :],
            good.replace(b"end\0", b"group=7\0" * 300 + b"end\0"),
            good.replace(b"end\0", b"cgroup=memory:/proc\0" * 9 + b"end\0"),
            chance.randbytes(200),
        ]
    )
    attempts = layout.open_attempts(box.state_dir)
    descriptor = layout.make_attempt(attempts, plan.key, uid=plan.uid, gid=plan.gid)
    layout.write(descriptor, layout.PLAN, broken, durable=False, readable_by_gid=None)
    os.close(descriptor)
    os.close(attempts)
    home = box.state_dir / "attempts" / str(plan.key)
    _, status = os.waitpid(shim_process.spawn(box.shim, home), 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert (home / "exit.json").exists()


def test_a_missing_shim_is_an_error_that_names_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "dlq-shim"
    with pytest.raises(ShimMissing, match="Install gcc or clang"):
        ensure_shim(path)
    path.write_text("")
    with pytest.raises(ShimMissing, match="chmod 755"):
        ensure_shim(path)
    path.chmod(0o755)
    assert ensure_shim(path) == path

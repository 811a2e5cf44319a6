"""Build hook: compiles the launch shim and the profiler (C) into the packages, for the wheel and
for an editable install.

`python hatch_build.py` compiles it in place, which is what `make` does when a C file changed.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

SHIM_DIR = Path("nodeagent/dlq_nodeagent/shim")
SHIM_NAME = "dlq-shim"
INIT_NAME = "dlq-init"
TASKS_NAME = "dlq-tasks"
OUTPUT_NAME = "dlq-output"
STEPS_NAME = "dlq-steps"
STDIN_NAME = "dlq-stdin"
# Main processes of ranks: each is the C files of one folder of the shim.
MAIN_PROCESSES = {
    "tasks": TASKS_NAME,
    "output": OUTPUT_NAME,
    "steps": STEPS_NAME,
    "stdin": STDIN_NAME,
}
FRONT_DIR = Path("client/dlq_compat/front")
FRONT_NAME = "dlq-front"
PLAIN_SCRIPT = "dlq-python"
SCRIPTS = {
    PLAIN_SCRIPT: "dlq_cli.main:main",
    "dlq-master": "dlq_master.app:main",
    "dlq-nodeagent": "dlq_nodeagent.app:main",
    "dlq-web": "dlq_web.daemon:main",
    "dlq-notify": "dlq_notify.app:main",
}
PROFILER_SOURCES = Path("profiler/src")
PROFILER_LIBRARIES = Path("profiler/dlq_profiler/lib")
PRELOAD_NAME = "libdlqprof.so"
PLUGIN_NAME = "libnccl-profiler-dlq.so"
# The sources of each library of the profiler: directories under PROFILER_SOURCES.
PROFILER_PARTS = {
    PRELOAD_NAME: ("recorder", "preload", "sockets", "verbs", "nccl"),
    PLUGIN_NAME: ("recorder", "plugin"),
}
FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-g", "-Wall", "-Wextra", "-pthread"]


PROFILER_FLAGS = [
    *("-std=gnu11", "-D_GNU_SOURCE", "-O2", "-g", "-Wall", "-Wextra", "-fPIC", "-shared"),
    *("-fvisibility=hidden", "-fno-plt", "-Wl,-z,now"),
]
# They start in any program, whatever its C library: they need none.
PROFILER_ALONE = ["-nostdlib", "-fno-stack-protector", "-U_FORTIFY_SOURCE"]
# A symbol that is nowhere would keep every program from starting into which it is preloaded. The
# plugin has the loader's own for the variables of threads.
PRELOAD_ALONE = ["-Wl,-z,defs"]
# On aarch64 atomics are calls into libgcc, unless told otherwise; other processors do not know the
# flag.
INLINE_ATOMICS = "-mno-outline-atomics"
# How a binary names the version of glibc that a symbol came with, and the oldest that PEP 600 tags
# name.
GLIBC_VERSION = re.compile(rb"GLIBC_(\d+)\.(\d+)")
OLDEST_GLIBC = (2, 5)


def find_compiler() -> list[str] | None:
    """The C compiler as an argument list: `$CC`, else cc, gcc or clang; None when there is none."""
    named = shlex.split(os.environ.get("CC", ""))
    candidates = [named] if named else [["cc"], ["gcc"], ["clang"]]
    return next((c for c in candidates if shutil.which(c[0])), None)


def compile_shim(root: Path) -> Path | None:
    """Compile every C file of the shim into one executable and return its path; and with it
    dlq-init, dlq-tasks, dlq-output, dlq-steps and dlq-stdin.

    Returns None without sources or without a compiler; the agent then refuses to start and says how
    to get a compiler. A compiler that fails raises: a half-built wheel must not look like a pure
    one. An old binary is replaced by rename, so a shim that is running keeps its file.
    """
    shim_dir = root / SHIM_DIR
    sources = sorted(str(path) for path in shim_dir.glob("*.c"))
    compiler = find_compiler()
    if not sources or compiler is None:
        return None
    _compile([*compiler, *FLAGS], sources, shim_dir / SHIM_NAME)
    try:
        # Process 1 of containers, and the forwards: static, because it must run in any image.
        inside = sorted(str(path) for path in (shim_dir / "init").glob("*.c"))
        _compile([*compiler, *FLAGS, "-static"], inside, shim_dir / INIT_NAME)
    except subprocess.CalledProcessError:
        print(
            "dlq-init was not linked (no static C library): no containers and forwards",
            file=sys.stderr,
        )
    # Main processes of ranks with several tasks, with output files, Slurm's steps or a client's
    # stdin; static for the same reason, where that is possible.
    for folder, name in MAIN_PROCESSES.items():
        own = sorted(str(path) for path in (shim_dir / folder).glob("*.c"))
        for static in (["-static"], []) if own else ():
            try:
                _compile([*compiler, *FLAGS, *static], own, shim_dir / name)
                break
            except subprocess.CalledProcessError:
                if not static:
                    raise
    return shim_dir / SHIM_NAME


def compile_front(root: Path) -> Path | None:
    """Compile the fast front of `dlq` and of Slurm's commands. Without sources or compiler there is
    none, and they are Python and sh programs. Static where possible: that halves the start.
    """
    sources = sorted(str(path) for path in (root / FRONT_DIR).glob("*.c"))
    compiler = find_compiler()
    if not sources or compiler is None:
        return None
    for static in (["-static", "-s"], ["-s"]):
        try:
            _compile([*compiler, *FLAGS, *static], sources, root / FRONT_DIR / FRONT_NAME)
            break
        except subprocess.CalledProcessError:
            if "-static" not in static:
                raise
    return root / FRONT_DIR / FRONT_NAME


def profiler_command(
    compiler: list[str], root: Path, name: str, alone: list[str] = PROFILER_ALONE
) -> list[str]:
    """The compiler's arguments for one library of the profiler, all but `-o`."""
    sources = root / PROFILER_SOURCES
    version = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    includes = [f"-I{sources.parent / 'include'}"]
    includes += [f"-I{sources / part}" for part in PROFILER_PARTS[name]]
    files = [str(f) for part in PROFILER_PARTS[name] for f in sorted((sources / part).glob("*.c"))]
    # A preloaded library is there from the start, where threads' variables are cheapest.
    own = {
        PRELOAD_NAME: [
            "-ftls-model=initial-exec",
            *(PRELOAD_ALONE if "-nostdlib" in alone else []),
        ],
        PLUGIN_NAME: ["-DDLQPROF_SOURCE=DLQPROF_NCCL_PLUGIN"],
    }[name]
    named = f'-DDLQPROF_PRODUCER="{name.removesuffix(".so")} {version}"'
    inline = [INLINE_ATOMICS] if _accepts(compiler, INLINE_ATOMICS) else []
    return [*compiler, *PROFILER_FLAGS, *alone, *inline, *own, named, *includes, *files]


def _accepts(compiler: list[str], flag: str) -> bool:
    trial = [*compiler, "-Werror", flag, "-fsyntax-only", "-x", "c", os.devnull]
    return subprocess.run(trial, capture_output=True, check=False).returncode == 0


def compile_profiler(root: Path) -> list[Path]:
    """Compile the profiler's libraries and return their paths. There are none without sources,
    without a compiler, or on a processor that they do not know. Jobs then run without a profile.
    """
    compiler = find_compiler()
    known = platform.machine() in ("x86_64", "aarch64")
    if compiler is None or not known or not (root / PROFILER_SOURCES).is_dir():
        return []
    libraries = [root / PROFILER_LIBRARIES / name for name in PROFILER_PARTS]
    for library in libraries:
        library.parent.mkdir(parents=True, exist_ok=True)
        _compile(profiler_command(compiler, root, library.name), [], library)
    return libraries


def _compile(command: list[str], sources: list[str], target: Path) -> None:
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    extra = shlex.split(os.environ.get("CFLAGS", ""))
    try:
        subprocess.run([*command, *extra, "-o", str(fresh), *sources], check=True)
        fresh.replace(target)
    finally:
        fresh.unlink(missing_ok=True)


def wheel_tag(built: list[Path]) -> str:
    """Any Python 3 on this platform: the shim is an executable, not an extension module.

    An index takes no `linux_x86_64`. On glibc the tag is `manylinux_X_Y` (PEP 600), where X.Y is
    the newest version of glibc whose symbols the built files name. Elsewhere, and where they name
    none, it is the platform's own.
    """
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    named = {match for path in built for match in GLIBC_VERSION.findall(path.read_bytes())}
    if named:
        major, minor = max(OLDEST_GLIBC, *((int(major), int(minor)) for major, minor in named))
        platform = platform.replace("linux_", f"manylinux_{major}_{minor}_", 1)
    return f"py3-none-{platform}"


def scripts_of(root: Path) -> dict[str, str]:
    """Python programs by their names. `dlq` is one of them where the front is not compiled; else it
    is the front, and runs `dlq-python` where no helper may answer.
    """
    compiled = find_compiler() is not None and any((root / FRONT_DIR).glob("*.c"))
    return SCRIPTS if compiled else {"dlq": SCRIPTS[PLAIN_SCRIPT], **SCRIPTS}


class ScriptsHook(MetadataHookInterface):
    """Names the programs of the package."""

    def update(self, metadata: dict[str, Any]) -> None:
        metadata["scripts"] = scripts_of(Path(self.root))


class ShimBuildHook(BuildHookInterface[Any]):
    """Puts the compiled shim into the wheel, or leaves the wheel pure and says so."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        shim = compile_shim(Path(self.root))
        libraries = compile_profiler(Path(self.root))
        front = compile_front(Path(self.root))
        if front is not None:
            build_data["shared_scripts"][str(front)] = "dlq"
        if shim is None:
            self.app.display_warning(
                "dlq: the launch shim was not compiled (no C compiler found); "
                "the CLI and the master work, dlq-nodeagent will refuse to start"
            )
            return
        if version == "editable":
            return
        names = (INIT_NAME, *MAIN_PROCESSES.values())
        beside = [shim, *(shim.with_name(name) for name in names)]
        programs = [path for path in beside if path.exists()]
        build_data["pure_python"] = False
        build_data["tag"] = wheel_tag([*programs, *libraries, *filter(None, [front])])
        for library in libraries:
            build_data["force_include"][str(library)] = f"dlq_profiler/lib/{library.name}"
        if front is not None:
            build_data["force_include"][str(front)] = f"dlq_compat/front/{front.name}"
        for program in programs:
            build_data["force_include"][str(program)] = f"dlq_nodeagent/shim/{program.name}"


if __name__ == "__main__":
    built = compile_shim(Path(__file__).parent)
    compile_profiler(Path(__file__).parent)
    compile_front(Path(__file__).parent)
    print(built or "no C compiler or no C sources: the shim was not built", file=sys.stderr)

"""A GPU host's side: the needs of an agent that runs jobs here. Looks at files and programs
only.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dlq_cli.doctor.verdict import CheckVerdict, fail, ok, skip, warn

CONFIG = Path("/etc/dlq/nodeagent.toml")
STATE_DIR = Path("/var/lib/dlq-agent")
LOW_BYTES, LOW_SHARE = 2 * 1024**3, 0.05
FEWEST_FILES = 4096
PROGRAM_S = 20.0
_NEEDED_V2 = {"cpu", "memory", "pids"}
_NEEDED_V1 = {"memory", "pids"}


def run_program(command: list[str]) -> tuple[int, str]:
    """Exit code and all output of a program; 127 when it cannot be started, 124 after PROGRAM_S."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=PROGRAM_S, check=False, text=True, errors="replace",
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return 124, f"no answer in {PROGRAM_S:g} s"
    except OSError as error:
        return 127, error.strerror or str(error)
    return done.returncode, done.stdout.strip()


def find_program(name: str) -> str | None:
    """The path of a program: in PATH, or beside the Python that runs us."""
    return shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The machine as the checks see it; a test hands in another one."""

    root: Path = Path("/")
    uid: int = field(default_factory=os.geteuid)
    which: Callable[[str], str | None] = find_program
    run: Callable[[list[str]], tuple[int, str]] = run_program

    def path(self, path: str | Path) -> Path:
        """A path of the machine."""
        return self.root / str(path).lstrip("/")

    def has(self, path: str | Path) -> bool:
        """Whether it is there, as far as this account can see."""
        return os.path.exists(self.path(path))


@dataclass(frozen=True, slots=True, kw_only=True)
class HostWish:
    """The values of the agent's configuration that the checks need."""

    config: Path | None = None
    state_dir: Path = STATE_DIR
    devices: str = "nvml"
    submitter: bool = False


def looks_like_a_node(host: Host) -> bool:
    """Whether an agent was configured or has run here."""
    return host.has(CONFIG) or host.has(STATE_DIR)


def wish_of(host: Host, config: Path | None, state_dir: Path | None) -> HostWish:
    """The agent's configuration. Unreadable parts have their defaults (`agent` reports them)."""
    path = config or (CONFIG if host.has(CONFIG) else None)
    tree = _toml(host.path(path)) if path is not None else {}
    node, jobs = _table(tree, "node"), _table(tree, "jobs")
    run_as = jobs.get("run_as", "auto")
    return HostWish(
        config=path,
        state_dir=state_dir or Path(str(node.get("state_dir", STATE_DIR))),
        devices=str(node.get("devices", "nvml")),
        submitter=run_as == "submitter" or (run_as == "auto" and host.uid == 0),
    )


def _toml(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}


def _table(tree: dict[str, Any], name: str) -> dict[str, Any]:
    found = tree.get(name)
    return found if isinstance(found, dict) else {}


def agent(host: Host, wish: HostWish) -> CheckVerdict:
    """The agent is installed with its imports, and accepts its configuration."""
    program = host.which("dlq-nodeagent")
    # Every wheel brings the program; its imports come with the extra.
    if program is None or host.run([program, "--help"])[0]:
        return fail("agent", "dlq-nodeagent is not installed", "pip install 'dlq[agent]'")
    if wish.config is None:
        return warn(
            "agent",
            f"installed; there is no {CONFIG}",
            "every key has a default; deploy/config/nodeagent.toml is a sample",
        )
    code, said = host.run([program, "run", "--check-config", "--config", str(wish.config)])
    if code:
        first = said.partition("\n")[0].removeprefix("dlq-nodeagent: ") or f"exit code {code}"
        return fail("agent", first, f"mend {wish.config}")
    return ok("agent", f"installed, takes {wish.config}")


def shim() -> CheckVerdict:
    """The launch shim, without which no job starts."""
    spec = find_spec("dlq_nodeagent")
    if spec is None or not spec.submodule_search_locations:
        return skip("shim", "the agent is not installed")
    path = Path(spec.submodule_search_locations[0]) / "shim" / "dlq-shim"
    if not path.is_file():
        return fail("shim", f"{path} is missing: dlq was built without a C compiler",
                    "apt-get install gcc libc6-dev, and install dlq again")  # fmt: skip
    if not os.access(path, os.X_OK):
        return fail("shim", f"{path} cannot be executed", f"chmod 755 {path}")
    return ok("shim", str(path))


def compiler(host: Host) -> CheckVerdict:
    """A C compiler: needed to build from source only."""
    for name in ("cc", "gcc", "clang"):
        if path := host.which(name):
            return ok("compiler", path)
    return warn("compiler", "none; a wheel with the shim needs none, building dlq does",
                "apt-get install gcc libc6-dev")  # fmt: skip


def cgroups(host: Host) -> CheckVerdict:
    """Control groups that the agent can use, which limit jobs and end all of them."""
    try:
        mounts = host.path("/proc/mounts").read_text()
    except OSError as error:
        return fail("cgroups", f"/proc/mounts cannot be read: {error.strerror}", "mount /proc")
    unified, kinds, at = _mounted(mounts)
    if unified and _controllers(host.path(unified)) >= _NEEDED_V2:
        kind, place = "v2", unified
    elif kinds >= _NEEDED_V1:
        kind, place = "v1 with a v2 tree beside it" if unified else "v1", at
    else:
        missing = ", ".join(sorted(_NEEDED_V1 - kinds))
        return fail("cgroups", f"no control group for {missing}: jobs run, and have no limits",
                    "boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1)")  # fmt: skip
    if host.uid != 0 and not os.access(host.path(place), os.W_OK):
        return warn("cgroups", f"{kind} at {place}, which this user cannot write",
                    "run the agent as root, or by systemd with Delegate=yes")  # fmt: skip
    return ok("cgroups", f"{kind} at {place}")


def podman(host: Host) -> CheckVerdict:
    """The runtime of containers, and the parts for `--init`."""
    path = host.which("podman")
    todo = "apt-get install podman catatonit; jobs without an image need neither"
    if path is None:
        return warn("podman", "not installed: only jobs without an image run here", todo)
    code, said = host.run([path, "--version"])
    version = re.search(r"\d+(?:\.\d+)+", said)
    if code or version is None:
        return fail("podman", f"{path} --version: {said.partition(chr(10))[0]}", "install it again")
    lacking = [name for name in ("conmon", "catatonit") if not _helper(host, name)]
    if not any(_helper(host, name) for name in ("crun", "runc")):
        lacking.append("crun or runc")
    if lacking:
        return fail("podman", f"{version[0]} without {', '.join(lacking)}", todo)
    if int(version[0].partition(".")[0]) < 4:
        return warn("podman", f"{version[0]} is old", "4.3 is the oldest that dlq is tested with")
    return ok("podman", f"{version[0]} at {path}")


def runtimes(shim_found: CheckVerdict, podman_found: CheckVerdict) -> CheckVerdict:
    """The runtimes that can start jobs here."""
    names = [
        name
        for name, found in (("process", shim_found), ("podman", podman_found))
        if found.health == "ok" and shim_found.health == "ok"
    ]
    if not names:
        return fail("runtimes", "none: this host can start no job", "mend the shim first")
    return ok("runtimes", ", ".join(names))


def disk(host: Host, wish: HostWish) -> CheckVerdict:
    """Room for journals and logs, on the nearest directory that is there."""
    place = host.path(wish.state_dir)
    while not os.path.exists(place) and place != place.parent:
        place = place.parent
    usage = shutil.disk_usage(place)
    free = (
        f"{usage.free / 1024**3:.1f} GiB free of {usage.total / 1024**3:.0f} below {wish.state_dir}"
    )
    if usage.free < LOW_BYTES or usage.free < LOW_SHARE * usage.total:
        told = fail if usage.free < LOW_BYTES / 8 else warn
        return told("disk", free, "make room: logs of jobs are kept there, `keep` says how long")
    return ok("disk", free)


def files() -> CheckVerdict:
    """How many files a process may open: each rank costs the agent a few."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = hard if hard != resource.RLIM_INFINITY else soft
    if 0 <= most < FEWEST_FILES:
        return warn("files", f"at most {most} open files", "LimitNOFILE=65536 in the unit")
    return ok("files", f"{soft} open files, {most} at most")


def users_map(host: Host, wish: HostWish) -> CheckVerdict:
    """The accounts for jobs, where jobs run in their submitters' accounts."""
    if not wish.submitter:
        return skip("users map", "not needed: all jobs run in the agent's own account")
    for path in (wish.state_dir / "users.map", Path("/etc/dlq/users.map")):
        try:
            found = host.path(path).stat()
        except OSError:
            continue
        if found.st_uid != 0 or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return fail("users map", f"{path}: others than root may write it",
                        f"chown root {path}; chmod 644 {path}")  # fmt: skip
        return ok("users map", str(path))
    return fail("users map", "there is none: the agent refuses to start jobs as their submitters",
                "write /etc/dlq/users.map; deploy/config/users.map is a sample")  # fmt: skip


def _mounted(mounts: str) -> tuple[str, set[str], str]:
    """The mount point of v2, the controllers of v1, and the mount point of one of those."""
    unified, at, kinds = "", "", set[str]()
    for line in mounts.splitlines():
        _, place, filesystem, options, *_ = [*line.split(" "), "", "", "", ""]
        if filesystem == "cgroup2":
            unified = unified or place
        elif filesystem == "cgroup":
            kinds |= set(options.split(","))
            at = place if "memory" in options.split(",") else at
    return unified, kinds, at


def _controllers(place: Path) -> set[str]:
    try:
        return set((place / "cgroup.controllers").read_text().split())
    except OSError:
        return set()


def _helper(host: Host, name: str) -> bool:
    """podman's helpers need not be in PATH."""
    places = ("/usr/libexec/podman", "/usr/lib/podman", "/usr/lib/crun", "/usr/sbin", "/usr/bin")
    return host.which(name) is not None or any(host.has(Path(place) / name) for place in places)

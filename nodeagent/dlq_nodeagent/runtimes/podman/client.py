"""How podman is called: global options, environment, and commands with a time limit."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from dlq_common.daemon.config import Bytes, Seconds
from dlq_nodeagent.model.launch import DEFAULT_PATH

# Variables that decide where podman looks, if the operator set them for the agent; nothing of a
# job's.
_PASSED_ON = (
    *("CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF", "CONTAINERS_REGISTRIES_CONF"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
)
# The user that runs an image must read its files; a service's umask may be tighter.
_UMASK = 0o022


@dataclass(frozen=True, slots=True)
class PodmanConfig:
    """Containers, with jobs.runtime = podman. Empty paths and words: podman's own defaults."""

    program: str = "podman"  # name or path
    root: str = ""  # its store of images and containers
    run_root: str = ""  # of 50 bytes at most
    oci_runtime: str = ""  # or "runc", "crun"
    mount_roots: tuple[str, ...] = ()  # jobs may mount directories below these; () = as jobs.roots
    registries: tuple[str, ...] = ()  # which jobs may name; () = any
    pull_timeout: Seconds = Seconds(1200.0)  # of one try
    pull_tries: int = 3  # until an image counts as not to be had
    pulls: int = 4  # at the same time
    pulls_per_user: int = 2  # of them, so that others have theirs
    largest_image: Bytes = Bytes(100 * 1024**3)  # a larger one is refused
    spare: Bytes = Bytes(5 * 1024**3)  # no pull goes on with less room left on the store's disk
    keep_images: Seconds = Seconds(7 * 86_400.0)  # unused; 0 = until room is short
    secrets: Path = Path("/etc/dlq/secrets")  # see runtimes/podman/secrets.py
    run_dir: Path = Path("/run/dlq-nodeagent")  # on a tmpfs: the copies of secrets for jobs
    writable: bool = False  # whether containers may write to their image (it fills the store)


class PodmanFailed(Exception):
    """A podman command failed; `words` is its last line, `code` None after its time limit."""

    def __init__(self, words: str, code: int | None) -> None:
        super().__init__(words)
        self.words = words
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class PodmanClient:
    """One podman store. Empty paths mean podman's own defaults.

    No service is involved: every command works on the store's files and locks. A killed command
    loses nothing but itself.
    """

    program: str = "podman"
    root: str = ""
    run_root: str = ""
    oci_runtime: str = ""

    def command(self, *words: str) -> list[str]:
        """The argument list of a podman command. Nothing of a job's environment belongs in it."""
        options = ["--log-level=error", "--cgroup-manager=cgroupfs", "--events-backend=none"]
        if self.root:
            options += ["--root", self.root]
        if self.run_root:
            options += ["--runroot", self.run_root, "--tmpdir", f"{self.run_root}/libpod"]
        if self.oci_runtime:
            options += ["--runtime", self.oci_runtime]
        return [self.program, *options, *words]

    def environment(self) -> Mapping[str, str]:
        passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        return {"PATH": DEFAULT_PATH, "HOME": "/root", "LC_ALL": "C.UTF-8"} | passed

    def ask(self, *words: str, timeout_s: float = 30.0) -> str:
        """Run a short command and return its output. Raises PodmanFailed."""
        try:
            done = subprocess.run(
                self.command(*words),
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout_s,
                check=False,
                cwd="/",
                umask=_UMASK,
            )
        except subprocess.TimeoutExpired:
            raise PodmanFailed(f"podman did not answer within {timeout_s:g} s", None) from None
        except OSError as error:
            raise PodmanFailed(f"{self.program}: {error.strerror}", None) from None
        if done.returncode != 0:
            raise PodmanFailed(last_words(done.stderr), done.returncode)
        return done.stdout

    def store(self) -> Path:
        """The directory of the store. Raises PodmanFailed if podman does not say."""
        return Path(self.root) if self.root else _default_store(self)

    def start(
        self, *words: str, quiet: bool = True, more: Mapping[str, str] | None = None
    ) -> "subprocess.Popen[str]":
        """Start a command; its output is thrown away, or comes line by line from its stdout. `more`
        is added to its environment.
        """
        out = subprocess.DEVNULL if quiet else subprocess.PIPE
        return subprocess.Popen(
            self.command(*words),
            env=dict(self.environment()) | dict(more or {}),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.DEVNULL if quiet else subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd="/",
            umask=_UMASK,
            start_new_session=True,
        )


@cache
def _default_store(client: PodmanClient) -> Path:
    return Path(client.ask("info", "--format={{.Store.GraphRoot}}").strip())


def last_words(text: str) -> str:
    """The last line that says something, as podman words its errors."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix("Error: ") if lines else "podman said nothing"


def choose_oci_runtime(cgroup_mode: str, wanted: str) -> str:
    """The OCI runtime to name; empty: podman's. crun refuses hybrid control groups."""
    if wanted or cgroup_mode != "hybrid":
        return wanted
    return "runc" if any(Path(at, "runc").exists() for at in DEFAULT_PATH.split(":")) else ""

"""Containers for tests: a podman store of their own, an image made of busybox, and a runtime over
it.
"""

import os
import pwd
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from dlq_nodeagent.cgroups import directories
from dlq_nodeagent.cgroups.detect import detect, detect_for_containers
from dlq_nodeagent.cgroups.port import CgroupTree
from dlq_nodeagent.model.launch import ContainerPlan, LaunchPlan
from dlq_nodeagent.model.port import Handle
from dlq_nodeagent.runtimes.podman.client import PodmanClient, PodmanFailed, choose_oci_runtime
from dlq_nodeagent.runtimes.podman.runtime import PodmanRuntime
from dlq_nodeagent.shim.binary import ensure_init
from support.process_box import ProcessBox
from support.waiting import wait_until

IMAGE = "localhost/dlq-test:1"
_APPLETS = (
    "sh",
    "sleep",
    "cat",
    "ls",
    "id",
    "env",
    "true",
    "mount",
    "kill",
    "mkdir",
    "dd",
    "tail",
    "wc",
)


def why_no_podman() -> str:
    """What this machine lacks for tests with containers; empty: nothing."""
    if os.geteuid() != 0:
        return "containers need root"
    for program in ("podman", "conmon"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    if _busybox() is None:
        return "busybox (static) is not installed"
    return ""


def _busybox() -> str | None:
    found = shutil.which("busybox")
    if found is None:
        return None
    said = subprocess.run(["ldd", found], capture_output=True, text=True, check=False)
    return found if "not a dynamic" in said.stdout + said.stderr else None


needs_podman = pytest.mark.skipif(bool(why_no_podman()), reason=why_no_podman() or "-")


def make_root_filesystem(at: Path) -> Path:
    """The files of a tiny image: busybox, and the directories that containers expect."""
    busybox = _busybox()
    assert busybox is not None
    for name in ("bin", "etc", "proc", "sys", "dev", "run", "tmp", "var/tmp", "data"):
        (at / name).mkdir(parents=True)
    (at / "tmp").chmod(0o1777)
    shutil.copy(busybox, at / "bin/busybox")
    for applet in _APPLETS:
        (at / "bin" / applet).symlink_to("busybox")
    (at / "etc/passwd").write_text("root:x:0:0:root:/:/bin/sh\n")
    (at / "etc/group").write_text("root:x:0:\n")
    return at


def submitter_name() -> str:
    """Who submits when the tests do."""
    return pwd.getpwuid(os.geteuid()).pw_name


class PodmanStore:
    """A podman store that nobody else uses, with one image in it."""

    def __init__(self, at: Path) -> None:
        self.at = at
        # podman takes no path of more than 50 characters here, and pytest's may be longer.
        self.run_root = Path(mkdtemp(prefix="dlq-"))
        tree = detect("store")
        runtime = choose_oci_runtime(tree.mode, "")
        tree.remove()
        self.client = PodmanClient(
            root=str(at / "store"), run_root=str(self.run_root), oci_runtime=runtime
        )
        self.load(make_root_filesystem(at / "rootfs"), IMAGE)
        self.image_id = self.client.ask("image", "inspect", "--format={{.Id}}", IMAGE).strip()

    def load(self, root: Path, name: str, *changes: str) -> None:
        """Make an image of a directory; `changes` are Dockerfile lines."""
        archive = self.at / "image.tar"
        with tarfile.open(archive, "w") as tar:
            tar.add(root, arcname=".")
        words = [f"--change={change}" for change in changes]
        self.client.ask("import", *words, str(archive), name, timeout_s=120)
        archive.unlink()

    def containers(self) -> list[str]:
        """Names of all containers, whatever their state."""
        return self.client.ask("ps", "--all", "--format={{.Names}}").split()

    def remove(self) -> None:
        """Containers, images, mounts and files."""
        wait_until(self._is_empty, what=f"podman empties {self.at}")
        wait_until(lambda: _is_gone(self.at), what=f"{self.at} is removed")
        wait_until(lambda: _is_gone(self.run_root), what=f"{self.run_root} is removed")

    def _is_empty(self) -> bool:
        try:
            self.client.ask("rm", "--all", "--force", "--time=0", timeout_s=120)
            self.client.ask("rmi", "--all", "--force", timeout_s=120)
        except PodmanFailed as failed:  # one that was killed a moment ago is of no state it knows
            sys.stderr.write(f"{failed}\n")
            return False
        return True


def _is_gone(at: Path) -> bool:
    # conmon's last podman may still clean up after a container, and mounts the store for that.
    for mounted in sorted(_mounts_below(at), reverse=True):
        subprocess.run(["umount", "-l", mounted], check=False)
    shutil.rmtree(at, ignore_errors=True)
    return not at.exists()


def _mounts_below(at: Path) -> list[str]:
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return [place for place in (line.split(" ")[1] for line in lines) if place.startswith(f"{at}/")]


class PodmanBox(ProcessBox):
    """A node agent's state directory with a `podman` runtime over a store."""

    def __init__(
        self, state_dir: Path, store: PodmanStore, *, tree: CgroupTree, boxes: CgroupTree
    ) -> None:
        self.store = store
        self.boxes = boxes
        super().__init__(state_dir, tree=tree)

    def _new_runtime(self) -> PodmanRuntime:
        return PodmanRuntime(
            state_dir=self.state_dir,
            contact=self.state_dir / "contact",
            cgroups=self.tree,
            container_cgroups=self.boxes,
            shim=self.shim,
            init=ensure_init(),
            client=self.store.client,
            clock=self.clock,
        )

    def plan(self, *argv: str, **fields: Any) -> LaunchPlan:
        """A plan in the test's image; `inside` holds fields of its ContainerPlan."""
        box = {"image": self.store.image_id, "network": "none"} | fields.pop("inside", {})
        return super().plan(*argv, container=ContainerPlan(**box), **fields)

    def private(self, handle: Handle, name: str) -> str:
        """One of podman's own small files about a living container."""
        return (self.path(handle) / "podman" / name).read_text().strip()

    def conmon_pid(self, handle: Handle) -> int:
        return int(self.private(handle, "conmon.pid"))

    def init_pid(self, handle: Handle) -> int:
        return int(self.private(handle, "pid"))

    def groups_left(self, handle: Handle) -> set[int]:
        """Processes in the control groups of a rank."""
        return directories.pids(self.attempt(handle).dirs)

    def clean(self) -> None:
        super().clean()
        self.boxes.remove()


@contextmanager
def podman_store(at: Path) -> Iterator[PodmanStore]:
    store = PodmanStore(at)
    try:
        yield store
    finally:
        store.remove()


@contextmanager
def podman_box(state_dir: Path, store: PodmanStore) -> Iterator[PodmanBox]:
    name = f"test-{os.getpid()}"
    box = PodmanBox(state_dir, store, tree=detect(name), boxes=detect_for_containers(name))
    try:
        yield box
    finally:
        box.clean()

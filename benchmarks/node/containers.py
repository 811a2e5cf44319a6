"""A podman store of a benchmark's own, with small images, and podman's own time to run one."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dlq_nodeagent.runtimes.podman.client import PodmanClient
from dlq_nodeagent.runtimes.podman.run import REMOVE

IMAGE = "localhost/dlq-bench:1"
"""A static busybox as /bin/true, and nothing else."""
HOST_IMAGE = "localhost/dlq-bench-host:1"
"""Empty directories: jobs mount /usr of this machine, so that its Python runs inside."""
_ULIMITS = ("--ulimit=nofile=1024:1024", "--ulimit=nproc=4096:4096")
_DIRECTORIES = ("dev", "proc", "sys", "run", "tmp", "etc", "var/tmp")
_LINKER = ("ld.so.cache", "ld.so.conf", "nsswitch.conf")


def why_no_containers() -> str:
    """The parts that this machine lacks to run containers; empty: none."""
    if os.geteuid() != 0:
        return "containers need root"
    missing = [program for program in ("podman", "busybox") if shutil.which(program) is None]
    return f"{' and '.join(missing)} not installed" if missing else ""


@contextmanager
def store(directory: Path, oci_runtime: str) -> Iterator[PodmanClient]:
    """A podman store in `directory` with both images in it; gone afterwards."""
    client = PodmanClient(
        root=str(directory / "store"), run_root=str(directory / "run"), oci_runtime=oci_runtime
    )
    busybox = shutil.which("busybox")
    assert busybox is not None
    try:
        with _image(client, directory, IMAGE) as tar:
            tar.add(busybox, "bin/true")
        with _image(client, directory, HOST_IMAGE) as tar:
            _add_host(tar)
        yield client
    finally:
        client.ask("rm", "--all", "--force", "--time=0", timeout_s=60)
        client.ask("rmi", "--all", "--force", timeout_s=60)
        subprocess.run(
            ["umount", "-l", f"{directory}/store/overlay"], check=False, capture_output=True
        )


def bare(client: PodmanClient, count: int) -> list[list[float]]:
    """`podman run --detach` alone: seconds until it returns, and until `podman wait` and `rm`
    do.
    """
    started, ended = [], []
    for number in range(count):
        name = f"dlq-bench-{number}"
        begin_s = time.perf_counter()
        words = (f"--name={name}", "--network=none", *_ULIMITS, IMAGE, "/bin/true")
        client.ask("run", "--detach", *words)
        started.append(time.perf_counter() - begin_s)
        client.ask("wait", name)
        client.ask(*REMOVE, name)
        ended.append(time.perf_counter() - begin_s)
    return [started, ended]


@contextmanager
def _image(client: PodmanClient, directory: Path, name: str) -> Iterator[tarfile.TarFile]:
    archive = directory / "image.tar"
    with tarfile.open(archive, "w") as tar:
        for path in _DIRECTORIES:
            _add(tar, path, tarfile.DIRTYPE)
        yield tar
    client.ask("import", str(archive), name)
    archive.unlink()


def _add_host(tar: tarfile.TarFile) -> None:
    _add(tar, "usr", tarfile.DIRTYPE)
    for name in ("bin", "sbin", "lib", "lib64"):
        _add(tar, name, tarfile.SYMTYPE, f"usr/{name}")
    for name in _LINKER:
        if (source := Path("/etc") / name).exists():
            tar.add(source, f"etc/{name}")


def _add(tar: tarfile.TarFile, path: str, kind: bytes, link: str = "") -> None:
    entry = tarfile.TarInfo(path)
    entry.type, entry.mode, entry.linkname = kind, 0o755, link
    tar.addfile(entry)

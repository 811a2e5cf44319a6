"""The cluster of the demo with agents that run containers, and an image that borrows the host's
/usr.
"""

import os
import sys
from pathlib import Path

from support.podman_box import PodmanStore

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "examples" / "demo"))

from cluster import Cluster  # noqa: E402 - the examples are scripts, not packages
from support.framework_trial import FRAMEWORKS, TORCH  # noqa: E402

HOST_IMAGE = "localhost/dlq-host-usr:1"

_PODMAN = """
[podman]
root = "{store}/store"
run_root = "{run_root}"
oci_runtime = "{oci_runtime}"
secrets = "{root}/secrets"
run_dir = "{root}/handed"
mount_roots = [{mount_roots}]
spare = "1MiB"
"""


class ContainerCluster(Cluster):
    """Its agents run containers from a store of the test; jobs may mount what is below its root.

    `without`: nodes that run processes only. `mounts`: what else jobs may mount. `settings`: of the
    master, instead of the demo's. `own_addresses`: each node has one on loopback.
    """

    def __init__(
        self,
        root: Path,
        store: PodmanStore,
        *,
        threshold: float = 1e6,
        nodes: tuple[str, ...] = ("e2e-a", "e2e-b"),
        without: tuple[str, ...] = (),
        mounts: tuple[Path, ...] = (),
        settings: str = "",
        own_addresses: bool = False,
    ) -> None:
        super().__init__(root, threshold=threshold, nodes=nodes, settings=settings)
        self._without = without
        self._own_addresses = own_addresses
        self._podman = _PODMAN.format(
            store=store.at,
            run_root=store.run_root,
            root=root,
            oci_runtime=store.client.oci_runtime,
            mount_roots=", ".join(f'"{place}"' for place in (root, *mounts)),
        )

    def start(self, name: str) -> None:
        path = self.root / f"{name}.toml"
        runs_containers = name in self.nodes and name not in self._without
        if runs_containers and "[podman]" not in path.read_text():
            text = path.read_text().replace("[jobs]\n", '[jobs]\nruntime = "podman"\n')
            if self._own_addresses:
                number = self.nodes.index(name) + 1
                text = text.replace("[node]\n", f'[node]\naddress = "127.0.0.{number}"\n')
            path.write_text(text + self._podman)
        super().start(name)

    def _environment(self) -> dict[str, str]:
        names = {"CONTAINERS_REGISTRIES_CONF"} & os.environ.keys()
        return super()._environment() | {name: os.environ[name] for name in names}


def load_host_image(store: PodmanStore) -> None:
    """An image with a name and a digest, of 60 kB: jobs in it mount /usr of the host read-only."""
    at = store.at / "host-usr"
    for name in ("usr", "etc", "tmp", "var/tmp", "proc", "sys", "dev", "run", "root", "home"):
        (at / name).mkdir(parents=True)
    (at / "tmp").chmod(0o1777)
    for name in ("bin", "sbin", "lib", "lib64"):
        (at / name).symlink_to(f"usr/{name}")
    (at / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (at / "etc/group").write_text("root:x:0:\n")
    for name in ("ld.so.cache", "ld.so.conf", "nsswitch.conf", "hosts"):
        source = Path("/etc") / name
        if source.exists():
            (at / "etc" / name).write_bytes(source.read_bytes())
    store.load(at, HOST_IMAGE)


def borrowed() -> tuple[Path, ...]:
    """What jobs take from the host: libraries, the interpreter, PyTorch, frameworks, the
    examples.
    """
    made = [place for place in (TORCH, FRAMEWORKS) if place.exists()]
    interpreters = {(place / "bin" / "python").resolve().parents[1] for place in made}
    own = [place for place in sorted(interpreters) if not place.is_relative_to("/usr")]
    return (Path("/usr"), *own, *made, ROOT / "examples")


def borrowing() -> list[str]:
    """The options of `dlq submit` for a container that takes all of it, read-only."""
    mounts = [word for place in borrowed() for word in ("--mount", f"{place}:{place}:ro")]
    return ["--image", HOST_IMAGE, *mounts]

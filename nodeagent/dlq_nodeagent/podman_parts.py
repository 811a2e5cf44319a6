"""Builds the agent's parts for containers: runtime, images and secrets."""

from dataclasses import dataclass
from pathlib import Path

from dlq_common.clock import Clock
from dlq_common.daemon.logs import get_logger
from dlq_common.errors import ConfigError
from dlq_nodeagent.cgroups.detect import detect_for_containers
from dlq_nodeagent.cgroups.port import CgroupTree
from dlq_nodeagent.config import AgentConfig
from dlq_nodeagent.runtimes.podman.clearing import Clearing
from dlq_nodeagent.runtimes.podman.client import PodmanClient, PodmanFailed, choose_oci_runtime
from dlq_nodeagent.runtimes.podman.images import Images
from dlq_nodeagent.runtimes.podman.prepare import PodmanContainers
from dlq_nodeagent.runtimes.podman.pull import Puller
from dlq_nodeagent.runtimes.podman.pulls import Pulls
from dlq_nodeagent.runtimes.podman.records import ImageRecords
from dlq_nodeagent.runtimes.podman.runtime import PodmanRuntime
from dlq_nodeagent.runtimes.podman.secrets import Secrets
from dlq_nodeagent.shim.binary import ensure_init, ensure_shim

_OLDEST = (4, 3)

log = get_logger("nodeagent.podman")


@dataclass(frozen=True, slots=True)
class PodmanParts:
    runtime: PodmanRuntime
    containers: PodmanContainers
    pulls: Pulls
    clearing: Clearing
    cgroups: CgroupTree

    def close(self) -> None:
        """End pulls and remove empty groups; containers go on."""
        self.pulls.close()
        self.clearing.stop()
        self.cgroups.remove()


def build_podman(
    config: AgentConfig, *, group: str, cgroups: CgroupTree, contact: Path, clock: Clock
) -> PodmanParts:
    """Raises ConfigError when this host has no podman that is recent enough, ShimMissing."""
    wanted = config.podman
    client = PodmanClient(
        program=wanted.program,
        root=wanted.root,
        run_root=wanted.run_root,
        oci_runtime=choose_oci_runtime(cgroups.mode, wanted.oci_runtime),
    )
    version = _version(client)
    boxes = detect_for_containers(group, base=config.node.cgroup)
    secrets = Secrets(wanted.secrets, wanted.run_dir / group)
    records = ImageRecords(path=config.node.state_dir / "images.json")
    clearing = Clearing(client=client, records=records, clock=clock, keep_s=wanted.keep_images)
    puller = Puller(
        client=client, rules=wanted, clock=clock, group=group, make_room=clearing.make_room
    )
    puller.sweep()
    images = Images(
        client=client,
        rules=wanted,
        clock=clock,
        records=records,
        secrets=secrets,
        puller=puller,
    )
    pulls = Pulls(fetch=images.fetch, most=wanted.pulls, most_of_user=wanted.pulls_per_user)
    runtime = PodmanRuntime(
        state_dir=config.node.state_dir,
        contact=contact,
        cgroups=cgroups,
        container_cgroups=boxes,
        shim=ensure_shim(),
        init=ensure_init(),
        client=client,
        clock=clock,
        secrets=secrets,
        writable=wanted.writable,
    )
    roots = wanted.mount_roots or config.jobs.roots
    containers = PodmanContainers(images=images, pulls=pulls, secrets=secrets, mount_roots=roots)
    log.info(
        "podman", version=version, cgroups=boxes.why, oci_runtime=client.oci_runtime or "default"
    )
    return PodmanParts(runtime, containers, pulls, clearing, boxes)


def _version(client: PodmanClient) -> str:
    try:
        version = client.ask("version", "--format={{.Client.Version}}").strip()
    except PodmanFailed as failed:
        raise ConfigError(
            f"jobs.runtime = podman, but podman does not run: {failed.words}",
            hint="install podman, conmon and crun or runc (on Debian: apt-get install podman)",
            key="jobs.runtime",
        ) from None
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        raise ConfigError(f"podman {version} is older than {oldest}", key="jobs.runtime")
    return version

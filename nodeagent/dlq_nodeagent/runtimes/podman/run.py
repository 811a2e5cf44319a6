"""The `podman run` of one rank; of the job's own words it has the mounts only."""

import os
import resource
from pathlib import Path

from dlq_nodeagent.model.launch import ContainerPlan, LaunchPlan, Mount, RankKey
from dlq_nodeagent.runtimes.podman.client import PodmanClient

LABEL_AGENT = "dlq.agent"
LABEL_KEY = "dlq.rank"
_PID_MAX = Path("/proc/sys/kernel/pid_max")
_INIT_PIDS = 1  # dlq-init counts too

# The job gets no more rights than a process of its user's, and sees less. It gets nothing of the
# host's network names, proxies, hooks of an image (volumes, health checks) or service manager.
_ALWAYS = (
    "--detach",
    "--init",
    "--pull=never",
    "--log-driver=passthrough",
    "--restart=no",
    "--cap-drop=all",
    "--security-opt=no-new-privileges",
    "--userns=host",
    "--ipc=private",
    "--cgroupns=private",
    "--image-volume=ignore",
    "--no-healthcheck",
    "--http-proxy=false",
    "--systemd=false",
    "--sdnotify=ignore",
    # Images for NVIDIA's hook ask for all GPUs; a job gets its own ones, by --device.
    "--env=NVIDIA_VISIBLE_DEVICES=void",
    "--entrypoint=",
    # dlq-init enters the job's directory: podman would fail over one that the user may not enter.
    "--workdir=/",
    # The shim's socket and the job itself, for dlq-init; see shim/init/init.c.
    "--preserve-fds=2",
)


REMOVE = ("rm", "--force", "--ignore", "--volumes", "--time=0")


def container_name(agent: str, key: RankKey) -> str:
    """The container's name; `agent` tells the agents of one host apart."""
    return f"dlq-{agent}-{key}"


def run_command(
    client: PodmanClient,
    plan: LaunchPlan,
    box: ContainerPlan,
    *,
    agent: str,
    init: Path,
    home: Path,
    cgroup_parent: str,
    writable: bool,
) -> list[str]:
    """`home` is the attempt's directory; podman's files and pinned mounts lie in its podman/."""
    private = home / "podman"
    own = (
        Mount(str(home), str(home), read_only=True),
        Mount(f"{home}/job", f"{home}/job", read_only=False),
        *box.own_mounts,
    )
    pinned = [
        Mount(f"{private}/m{at}", mount.target, mount.read_only)
        for at, mount in enumerate(box.mounts)
    ]
    return client.command(
        "run",
        *_ALWAYS,
        f"--init-path={init}",
        f"--name={container_name(agent, plan.key)}",
        f"--label={LABEL_AGENT}={agent}",
        f"--label={LABEL_KEY}={plan.key}",
        f"--cidfile={private}/cid",
        f"--pidfile={private}/pid",
        f"--conmon-pidfile={private}/conmon.pid",
        f"--user={plan.uid}:{plan.gid}",
        *(f"--group-add={group}" for group in plan.groups),
        f"--network={box.network}",
        *(() if writable else ("--read-only", "--read-only-tmpfs=true")),
        *_limits(plan, box, cgroup_parent),
        *(f"--volume={_volume(mount, 'bind')}" for mount in own),
        *(f"--volume={_volume(mount, 'rbind')}" for mount in pinned),
        *(f"--device={device}" for device in box.devices),
        box.image,
        str(plan.key),
    )


def exec_command(client: PodmanClient, name: str, *, init: str, terminal: bool) -> list[str]:
    """`podman exec` of dlq-init, which becomes the command that descriptor 3 holds. User, groups,
    capabilities and limits are the container's: nothing here can widen them."""
    return client.command(
        *("exec", "--interactive", *(["--tty"] if terminal else []), "--detach-keys="),
        *("--preserve-fds=1", "--workdir=/", name, init, "exec"),
    )


def remove_command(client: PodmanClient, name: str) -> list[str]:
    """Take the container and its files away in any state; fine without one."""
    return client.command(*REMOVE, name)


def _limits(plan: LaunchPlan, box: ContainerPlan, cgroup_parent: str) -> list[str]:
    options = [f"--pids-limit={plan.pids_max + _INIT_PIDS}", *_ulimits()]
    if cgroup_parent:
        options.append(f"--cgroup-parent={cgroup_parent}")
    if plan.memory_bytes is not None:
        # Memory and swap together: a limit that swaps is no limit.
        options += [f"--memory={plan.memory_bytes}b", f"--memory-swap={plan.memory_bytes}b"]
    if plan.cpus is not None:
        options.append(f"--cpus={plan.cpus:g}")
    if plan.cores:
        options.append(f"--cpuset-cpus={','.join(map(str, plan.cores))}")
    if plan.weight is not None:
        options.append(f"--cpu-shares={1024 * plan.weight}")
    options.append(f"--shm-size={box.shm_bytes or _default_shm(plan)}b")
    return options


def _default_shm(plan: LaunchPlan) -> int:
    """Half of the job's memory limit: workers that hand tensors over fail in podman's own 64 MiB.
    It is charged to the job's memory when it is used, so a large size costs nothing.
    """
    whole = plan.memory_bytes or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(64 << 20, whole // 2)


def _ulimits() -> list[str]:
    """Ours, named one by one: podman's own defaults are more than an unprivileged root may set."""
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    _, processes = resource.getrlimit(resource.RLIMIT_NPROC)
    _, locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    pid_max = int(_PID_MAX.read_text())
    processes = pid_max if processes < 0 else min(processes, pid_max)
    return [
        f"--ulimit=nofile={files}:{files}",
        f"--ulimit=nproc={processes}:{processes}",
        f"--ulimit=memlock={locked}:{locked}",
        "--ulimit=core=0:0",
    ]


def _volume(mount: Mount, how: str) -> str:
    access = "ro" if mount.read_only else "rw"
    return f"{mount.source}:{mount.target}:{access},{how},nosuid,nodev,rprivate"

"""The `podman` runtime: ranks with an image run in containers, the others as the `process` runtime.

The shim of a rank starts `podman run`, guards the container and removes it at its end. No other
program does so (shim/README.md, "Containers"). Everything that the process runtime promises of
restarts, silence and records holds here too. An agent, a podman command or a conmon may be killed
at any time. `recover` finds the remains of a killed shim by the containers' labels.
"""

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from zlib import crc32

from dlq_common.clock import Clock
from dlq_common.daemon.logs import get_logger
from dlq_nodeagent.cgroups.detect import engine_path
from dlq_nodeagent.cgroups.port import CgroupDir, CgroupTree, Limits
from dlq_nodeagent.jobtree.files import opened
from dlq_nodeagent.model.launch import LaunchPlan, RankKey
from dlq_nodeagent.model.mistakes import LaunchRefused
from dlq_nodeagent.model.port import ExitRecord, ExitWhy, Handle, RuntimeFault
from dlq_nodeagent.runtimes.podman.client import PodmanClient, PodmanFailed
from dlq_nodeagent.runtimes.podman.run import (
    LABEL_AGENT,
    LABEL_KEY,
    REMOVE,
    container_name,
    exec_command,
    remove_command,
    run_command,
)
from dlq_nodeagent.runtimes.podman.secrets import Secrets
from dlq_nodeagent.runtimes.process import layout
from dlq_nodeagent.runtimes.process.attempts import OpenAttempt
from dlq_nodeagent.runtimes.process.runtime import ProcessRuntime

PRIVATE = "podman"
_REMOVE_S = 60.0
_REMOVE_AGAIN_S = (0.2, 1.0, 5.0, 20.0)
_UNLIMITED = Limits(memory_bytes=None, pids_max=None, cpus=None)

log = get_logger("nodeagent.podman")


class PodmanRuntime(ProcessRuntime):
    """Rootful only: a container of an unprivileged podman has no limits on v1, and no devices."""

    name = "podman"
    _sees_main = False  # it is the init of the container

    def __init__(
        self,
        *,
        state_dir: Path,
        contact: Path,
        cgroups: CgroupTree,
        container_cgroups: CgroupTree,
        shim: Path,
        init: Path,
        client: PodmanClient,
        clock: Clock,
        secrets: Secrets | None = None,
        writable: bool = False,
    ) -> None:
        """`container_cgroups` is the result of `detect_for_containers`; `init` is dlq-init.
        `writable` gives containers a writable image; the changes fill podman's store until the
        container is gone.
        """
        super().__init__(
            state_dir=state_dir, contact=contact, cgroups=cgroups, shim=shim, clock=clock
        )
        self._container_cgroups = container_cgroups
        self._init = init
        self._client = client
        self._writable = writable
        self._secrets = secrets
        # Several agents of one host share podman's store: each knows its own by its directory.
        self._agent = f"{crc32(str(self._state_dir.resolve()).encode()):08x}"
        self._closed = threading.Event()

    def close(self) -> None:
        """Close as the process runtime; a container under removal may stay for the next agent."""
        self._closed.set()
        super().close()

    def recover(self) -> list[Handle]:
        """Recover as the port says; containers without an attempt of ours are taken away too."""
        handles = super().recover()
        ended = {handle.key for handle in handles if self._attempts[handle.key].record is not None}
        living = frozenset(handle.key for handle in handles) - ended
        if self._secrets is not None:
            self._secrets.keep_only(living)
        # podman may wait for a lock of its own, so no thread waits for podman.
        threading.Thread(target=self._sweep, args=(living,), daemon=True).start()
        return handles

    def poll(self, handle: Handle) -> ExitRecord | None:
        """Poll as the port says. A lost shim has not taken its container away."""
        if self._known(handle).record is not None:
            return self._known(handle).record
        record = super().poll(handle)
        if record is None:
            return None
        if self._secrets is not None:
            try:
                self._secrets.take_back(handle.key)
            except OSError as error:
                log.error("secrets_not_taken_back", key=str(handle.key), error=str(error))
        if record.why is ExitWhy.SHIM_LOST:
            self._take_away(handle.key)
        return record

    # ---- inside

    def _make_groups(self, plan: LaunchPlan) -> tuple[CgroupDir, ...]:
        if plan.container is None:
            return super()._make_groups(plan)
        return self._container_cgroups.create(str(plan.key), _UNLIMITED)

    def _more_records(self, plan: LaunchPlan, attempt: OpenAttempt) -> Sequence[str]:
        box = plan.container
        if box is None:
            return ()
        os.mkdir(PRIVATE, mode=0o700, dir_fd=attempt.at)
        run = run_command(
            self._client,
            plan,
            box,
            agent=self._agent,
            init=self._init,
            home=layout.attempt_path(self._state_dir, plan.key),
            cgroup_parent=engine_path(attempt.dirs),
            writable=self._writable,
        )
        remove = remove_command(self._client, container_name(self._agent, plan.key))
        environment = self._client.environment()
        return (
            *(f"podman={word}" for word in run),
            *(f"podman_rm={word}" for word in remove),
            *(f"podman_env={name}={value}" for name, value in environment.items()),
            *(f"mount={mount.source}" for mount in box.mounts),
            *(f"mount_root={root}" for root in box.mount_roots),
            *([f"image_cwd={box.image_cwd}"] if box.image_cwd else []),
        )

    def _engine_words(self, attempt: OpenAttempt, *, terminal: bool) -> Sequence[str]:
        if not layout.exists(attempt.at, PRIVATE):
            return ()
        name = container_name(self._agent, attempt.handle.key)
        return exec_command(self._client, name, init=self._init_inside(attempt), terminal=terminal)

    def boxed_init(self, handle: Handle) -> str:
        attempt = self._known(handle)
        return self._init_inside(attempt) if layout.exists(attempt.at, PRIVATE) else ""

    def _init_inside(self, attempt: OpenAttempt) -> str:
        """The place of dlq-init in the container: podman's releases differ, and process 1 knows."""
        try:
            pid = int(layout.read(attempt.at, f"{PRIVATE}/pid") or b"")
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError) as error:
            raise RuntimeFault(f"{attempt.handle.key} does not run ({error})") from None
        return os.fsdecode(words[0])

    def _tidy(self, at: int) -> None:
        """Our own names only, by descriptor: a mount that is still there makes rmdir fail."""
        with suppress(FileNotFoundError), opened(PRIVATE, at=at) as private:
            with os.scandir(private) as entries:
                names = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
            for name, is_directory in names.items():
                (os.rmdir if is_directory else os.unlink)(name, dir_fd=private)
            os.rmdir(PRIVATE, dir_fd=at)

    def _sweep(self, living: frozenset[RankKey]) -> None:
        """Containers of this agent whose rank is over, or unknown: their shims were killed."""
        ours = f"label={LABEL_AGENT}={self._agent}"
        shape = f'{{{{index .Labels "{LABEL_KEY}"}}}}'
        try:
            listed = self._client.ask("ps", "--all", "--filter", ours, "--format", shape)
        except PodmanFailed as failed:
            log.warning("containers_not_listed", error=failed.words)
            return
        for line in listed.split():
            with suppress(LaunchRefused):
                key = RankKey.parse(line)
                if key not in living:
                    self._take_away(key)

    def _take_away(self, key: RankKey) -> None:
        name = container_name(self._agent, key)
        log.warning("container_left_behind", name=name)
        thread = threading.Thread(target=self._remove, args=(name,), daemon=True)
        thread.start()

    def _remove(self, name: str) -> None:
        """podman may refuse while it still finds out that the container has stopped."""
        words = ""
        for pause_s in _REMOVE_AGAIN_S:
            try:
                self._client.ask(*REMOVE, name, timeout_s=_REMOVE_S)
            except PodmanFailed as failed:
                words = failed.words
            else:
                return
            if self._closed.wait(pause_s):
                return
        log.error("container_not_removed", name=name, error=words)

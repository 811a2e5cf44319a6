"""The images of one podman store: their names, their permitted users, and their pulls.

Every pull is a command of its own. A dying agent leaves it to its successor, which ends it (whole
layers are not fetched twice). Nothing here waits for the master.
"""

import json
import os
import stat
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from dlq_common.clock import Clock
from dlq_common.daemon.logs import get_logger
from dlq_common.start_causes import StartCause
from dlq_common.text.container_names import check_image, registry_of, repository_of
from dlq_nodeagent.model.mistakes import LaunchRefused, UserMistake
from dlq_nodeagent.runtimes.podman.client import PodmanClient, PodmanConfig, PodmanFailed
from dlq_nodeagent.runtimes.podman.pull import PullEnding, Puller, Say, TooLarge
from dlq_nodeagent.runtimes.podman.pulls import PullWish
from dlq_nodeagent.runtimes.podman.records import ImageRecords
from dlq_nodeagent.runtimes.podman.secrets import Secrets

_LOCAL = "localhost"
_INSPECT_S = 60.0

log = get_logger("nodeagent.images")


class Image(NamedTuple):
    """An image in the store. An id always means the same image, even when its name moves."""

    image_id: str
    working_directory: str
    size_bytes: int
    digest: str = ""
    """The digest of its manifest, as `REPOSITORY@DIGEST` names it; empty: podman knows none."""
    environment: tuple[str, ...] = ()
    """Its variables, as NAME=VALUE."""


@dataclass(slots=True, kw_only=True)
class Images:
    """Thread-safe. Two agents with one store know nothing of each other's records. Each takes the
    other's pulled images for an operator's.
    """

    client: PodmanClient
    rules: PodmanConfig
    clock: Clock
    records: ImageRecords
    secrets: Secrets
    puller: Puller
    _unfit: dict[str, str] = field(default_factory=dict)

    def usable(self, image: str, user: str) -> Image | None:
        """An image of the store that this user may use; None: `fetch` it first.

        Raises UserMistake for an image that can never be pulled here, LaunchRefused for one that
        another node may have.
        """
        try:
            check_image(image)
        except ValueError as error:
            raise UserMistake(str(error)) from None
        found = self._find(image)
        if found and self.records.allows(found.image_id, repository_of(image), user):
            self._check_fit(image, found.image_id)
            self.records.used(found.image_id, self.clock.now_s())
            return found
        if registry_of(image) == _LOCAL:
            raise LaunchRefused(
                f"the image {image} is not on this node, and has no registry", StartCause.IMAGE
            )
        self._check_registry(image)
        return None

    def fetch(self, wish: PullWish, say: Say, ending: PullEnding) -> None:
        """Pull an image by its user's own credential, which is also how a user shows that they may
        use one that is here. Raises as `Puller.pull`, OSError.
        """
        if self.usable(wish.image, wish.user):  # another pull has brought it meanwhile
            return
        with (
            self.secrets.auth_file(wish.image, wish.secret, wish.user)
            if wish.secret
            else nullcontext()
        ) as auth_file:
            if wish.secret:
                self.records.begin(repository_of(wish.image))
            self.puller.pull(wish.image, auth_file, say, ending)
        found = self._find(wish.image)
        if found is None:
            raise LaunchRefused(f"the image {wish.image} is gone after its pull", StartCause.IMAGE)
        if found.size_bytes > self.rules.largest_image:
            self._drop(found.image_id)
            most = self.rules.largest_image
            raise TooLarge(
                f"the image {wish.image} is {found.size_bytes} bytes; this node takes {most}"
            )
        self.records.pulled(
            found.image_id,
            user=wish.user,
            with_secret=bool(wish.secret),
            now_s=self.clock.now_s(),
        )

    def _find(self, image: str) -> Image | None:
        shape = (
            "--format={{.Size}} {{.Id}} {{.Digest}} {{.Config.WorkingDir}}\n{{json .Config.Env}}"
        )
        try:
            listed = self.client.ask("image", "inspect", shape, image, timeout_s=_INSPECT_S)
        except PodmanFailed as failed:
            if failed.code is None:
                raise LaunchRefused(f"podman: {failed.words}", StartCause.IMAGE) from None
            return None
        facts, _, environment = listed.strip("\n").rpartition("\n")
        size, image_id, digest, directory = facts.split(" ", 3)
        cwd = directory if directory.startswith("/") else "/"
        return Image(image_id, cwd, int(size), digest, tuple(json.loads(environment) or ()))

    def _check_fit(self, image: str, image_id: str) -> None:
        """Looked at once in the agent's life: an id always means the same image."""
        if image_id not in self._unfit:
            try:
                mounted = self.client.ask("image", "mount", image_id, timeout_s=_INSPECT_S).strip()
                try:
                    self._unfit[image_id] = unfit(Path(mounted))
                finally:
                    self.client.ask("image", "unmount", image_id, timeout_s=_INSPECT_S)
            except (PodmanFailed, OSError) as failed:
                log.warning("image_not_looked_at", image=image, error=str(failed))
                return
        why = self._unfit[image_id]
        if why:
            raise UserMistake(f"the image {image} cannot be used: {why}")

    def _check_registry(self, image: str) -> None:
        registry = registry_of(image)
        if self.rules.registries and registry not in self.rules.registries:
            known = ", ".join(self.rules.registries)
            raise UserMistake(f"images from {registry} are not allowed on this node, only {known}")

    def _drop(self, image_id: str) -> None:
        with suppress(PodmanFailed):
            self.client.ask("rmi", "--force", image_id, timeout_s=_INSPECT_S)


_OURS = ("/run", "/tmp", "/var/tmp")  # in memory, for the job
_KERNELS = ("/proc", "/sys", "/dev")
_MOST_LINKS = 40


def unfit(root: Path) -> str:
    """The reason why an image with these files can never start; empty: none is seen."""
    for path in _KERNELS:
        mode = _mode(root, path)
        if mode is not None and not stat.S_ISDIR(mode):
            return f"its {path} is not a directory"
    for path in _OURS:
        place = _resolved(root, path)
        if place is None:
            return f"its {path} is a link that never ends"
        if (
            place == "/"
            or place.startswith(tuple(f"{it}/" for it in _KERNELS))
            or place in _KERNELS
        ):
            return f"its {path} is a link to {place if place == '/' else '/' + place.split('/')[1]}"
        mode = _mode(root, place)
        if mode is not None and not stat.S_ISDIR(mode):
            return f"its {path} is not a directory"
    return ""


def _resolved(root: Path, path: str) -> str | None:
    """The target of a path of the image, links followed within it; None: round and round."""
    done: list[str] = []
    todo = path.split("/")[::-1]
    links = 0
    while todo:
        part = todo.pop()
        if part in ("", "."):
            continue
        if part == "..":
            del done[-1:]
            continue
        here = "/" + "/".join([*done, part])
        mode = _mode(root, here)
        if mode is None or not stat.S_ISLNK(mode):
            done.append(part)
            continue
        links += 1
        if links > _MOST_LINKS:
            return None
        target = os.readlink(f"{root}{here}")
        if target.startswith("/"):
            done = []
        todo += target.split("/")[::-1]
    return "/" + "/".join(done)


def _mode(root: Path, path: str) -> int | None:
    """The mode of a path whose directories are no links; None: nothing."""
    try:
        return os.lstat(f"{root}{path}").st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None

"""Makes the parts of a container's plan ready: image, mounts, GPUs and secrets."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dlq_common.text.container_names import check_mount_source, check_mount_target
from dlq_nodeagent.devices.port import Device
from dlq_nodeagent.jobtree.paths import check_real_place, checked_path
from dlq_nodeagent.jobtree.user_rights import UserRights
from dlq_nodeagent.model.launch import SECRETS, ContainerPlan, Mount, Network, RankKey
from dlq_nodeagent.model.messages import Launch
from dlq_nodeagent.model.mistakes import NOT_FOUND, LaunchRefused, UserMistake, exit_code_of
from dlq_nodeagent.runtimes.podman.devices import device_words
from dlq_nodeagent.runtimes.podman.images import Image, Images
from dlq_nodeagent.runtimes.podman.pull import Say
from dlq_nodeagent.runtimes.podman.pulls import Done, ImageWanted, Pulls, PullWish
from dlq_nodeagent.runtimes.podman.secrets import Secrets

HOME = "/tmp"  # the only place of an image that is surely writable


class Containers(Protocol):
    """The part of launching that serves jobs with a container."""

    def plan(
        self,
        launch: Launch,
        rights: UserRights,
        devices: Sequence[Device],
        script: Path | None,
    ) -> ContainerPlan:
        """The container of a launch. Raises UserMistake, LaunchRefused, OSError; ImageWanted when
        something must be fetched before, and this asked again.
        """
        ...

    def fetch(self, key: RankKey, wish: PullWish, say: Say, done: Done) -> None:
        """Have an image fetched; `done` gets None or the refusal later, from any thread."""
        ...

    def abandon(self, key: RankKey) -> None:
        """The rank waits for no image any more: `done` gets the refusal, if it did wait."""
        ...

    def forget(self, key: RankKey) -> None:
        """Take back the files of a rank that may never have started; repeating it is fine."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PodmanContainers:
    """The real one. `mount_roots` empty: any directory that the user may open."""

    images: Images
    pulls: Pulls
    secrets: Secrets
    mount_roots: tuple[str, ...]

    def plan(
        self,
        launch: Launch,
        rights: UserRights,
        devices: Sequence[Device],
        script: Path | None,
    ) -> ContainerPlan:
        asked = launch.container
        assert asked is not None
        mounts = self._mounts(launch, rights)
        words = device_words(devices)
        image = self._image(launch)
        handed = self.secrets.hand_over(
            launch.key, asked.secrets, user=launch.user, uid=rights.uid, gid=rights.gid
        )
        own = [Mount(str(script), str(script), read_only=True)] if script else []
        own += [Mount(str(handed), SECRETS, read_only=True)] if handed else []
        return ContainerPlan(
            image=image.image_id,
            image_digest=image.digest,
            image_environment=image.environment,
            image_cwd="" if launch.working_directory else image.working_directory,
            mounts=mounts,
            mount_roots=self._roots(launch),
            own_mounts=tuple(own),
            shm_bytes=asked.shm_size_bytes,
            network=_network(asked.network),
            devices=words,
        )

    def fetch(self, key: RankKey, wish: PullWish, say: Say, done: Done) -> None:
        self.pulls.want(key, wish, say, done)

    def abandon(self, key: RankKey) -> None:
        self.pulls.unwant(key)

    def forget(self, key: RankKey) -> None:
        self.secrets.take_back(key)

    def _image(self, launch: Launch) -> Image:
        asked = launch.container
        assert asked is not None
        found = self.images.usable(asked.image, launch.user)
        if found is None:
            raise ImageWanted(PullWish(asked.image, launch.user, asked.image_secret))
        return found

    def _roots(self, launch: Launch) -> tuple[str, ...]:
        """The operator's, and the job's own checkpoints, which launching has checked."""
        if not self.mount_roots:
            return ()
        own = filter(None, (launch.checkpoint_directory, launch.resume_from))
        return (*self.mount_roots, *own)

    def _mounts(self, launch: Launch, rights: UserRights) -> tuple[Mount, ...]:
        """The user's mounts and the checkpoints at their place in the job. Looked at now for a
        clear error; the shim opens them again and decides.
        """
        asked = launch.container
        assert asked is not None
        mounts = [Mount(each.source, each.target, each.read_only) for each in asked.mounts]
        with rights.taken():
            for mount in mounts:
                self._check(mount)
            resume = launch.resume_from
            if (
                resume
                and not _inside(resume, launch.checkpoint_directory)
                and os.path.exists(resume)
            ):
                mounts.append(Mount(resume, resume, read_only=True))
        if launch.checkpoint_directory:
            place = launch.checkpoint_directory
            mounts.append(Mount(place, place, read_only=False))
        targets = {mount.target: mount for mount in mounts}  # the user's own choice comes first
        for mount in reversed(mounts):
            targets[mount.target] = mount
        return tuple(targets.values())

    def _check(self, mount: Mount) -> None:
        try:
            check_mount_source(mount.source)
            check_mount_target(mount.target)
        except ValueError as error:
            raise UserMistake(str(error)) from None
        what = "the mount source"
        source = checked_path(mount.source, what, ())
        try:
            os.stat(source)
        except OSError as error:
            code = exit_code_of(error.errno or 0)
            if code is None:
                raise
            words = "does not exist on this node" if code == NOT_FOUND else error.strerror
            raise UserMistake(f"{what} {source} {words}", code) from None
        check_real_place(source, what, self.mount_roots)


def inside_container(launch: Launch, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a job in its image. A login's variables on this node give way to the
    image's own, and to a writable home directory.
    """
    inside = dict(environment)
    for name in {"PATH", "HOME"} - launch.environment.keys():
        inside.pop(name, None)
    return {"HOME": HOME} | inside


def _network(word: str) -> Network:
    if word == "none":
        return "none"
    if word in ("", "host"):
        return "host"
    raise UserMistake(f"no such network: {word!r}")


def _inside(path: str, directory: str) -> bool:
    return bool(directory) and (path == directory or path.startswith(f"{directory.rstrip('/')}/"))


def secrets_of(secrets: Secrets, launch: Launch) -> tuple[bytes, ...] | None:
    """The content of a launch's secrets; None when one of them cannot be read any more."""
    asked = launch.container
    if asked is None:
        return ()
    try:
        return tuple(secrets.read(name, launch.user) for name in asked.secrets)
    except (UserMistake, LaunchRefused, OSError):
        return None

"""Images: looked up in podman's store, and pulled into it with a time limit, retries and a size limit.

Every pull is a command of its own: an agent that dies leaves it to end or to be done again (layers
that are whole are not fetched twice). Nothing here waits for the master.
"""

import os
import re
import select
import shutil
import signal
import subprocess
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import structlog

from dlq_common.clock import Clock
from dlq_common.container_names import check_image, registry_of
from dlq_nodeagent.model.mistakes import CANNOT_RUN, NOT_FOUND, UserMistake
from dlq_nodeagent.runtimes.launch import LaunchRefused
from dlq_nodeagent.runtimes.podman_client import PodmanClient, PodmanFailed, last_words

_LOCAL = "localhost"
_LOOK_S = 0.5
_SAY_AGAIN_S = 5.0
_INSPECT_S = 60.0
# What a registry says of a name that nobody can pull; everything else may be better elsewhere or later.
_NO_SUCH = re.compile(
    r"manifest unknown|name unknown|not found|no such image|does not exist|NAME_UNKNOWN",
    re.IGNORECASE,
)
_DENIED = re.compile(
    r"unauthorized|denied|authentication required|invalid username/password|forbidden",
    re.IGNORECASE,
)
_UNUSABLE = re.compile(
    r"no image found in (?:manifest list|image index) for architecture|unsupported MIME|"
    r"invalid tar header|archive/tar|digest mismatch|does not match the expected digest|"
    # A layer that cannot be unpacked, unless it is the disk that refuses.
    r"processing tar file\((?!.*(?:no space|input/output error|read-only|quota))",
    re.IGNORECASE,
)
_BLOB = re.compile(r"Copying blob (?:sha256:)?([0-9a-f]+)(.*)")

Say = Callable[[str], None]

log = structlog.get_logger("nodeagent.images")


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRules:
    """What may be pulled here, and how patiently. Sizes are bytes."""

    registries: tuple[str, ...] = ()
    """Registries that jobs may name; empty: any."""
    timeout_s: float = 1200.0
    tries: int = 3
    pause_s: float = 5.0
    """Before the second try; doubled before each further one."""
    largest_bytes: int = 100 << 30
    spare_bytes: int = 5 << 30
    """A pull is given up when the store's disk has less than this left."""


@dataclass(slots=True)
class _Progress:
    """Layers of a pull, from what podman prints when it has no terminal."""

    begun: set[str] = field(default_factory=set)
    done: set[str] = field(default_factory=set)

    def take(self, line: str) -> bool:
        found = _BLOB.search(line)
        if found is None:
            return False
        self.begun.add(found[1])
        if re.search(r"done|skipped", found[2]):
            self.done.add(found[1])
        return True

    def __str__(self) -> str:
        if not self.begun:
            return "asking its registry"
        return f"{len(self.done)} of {len(self.begun)} layers"


class Image(NamedTuple):
    """An image in the store. An id stays what it is, whatever its name is given to later."""

    image_id: str
    working_directory: str
    size_bytes: int


class TooLarge(UserMistake):
    """The image is larger than this node takes."""


@dataclass(slots=True, kw_only=True)
class Images:
    """The images of one podman store. Thread-safe; two ranks that want one image pull it once."""

    client: PodmanClient
    rules: PullRules
    clock: Clock
    _locks: defaultdict[str, threading.Lock] = field(
        default_factory=lambda: defaultdict(threading.Lock)
    )
    _pulls: set["subprocess.Popen[str]"] = field(default_factory=set)
    _closed: threading.Event = field(default_factory=threading.Event)

    def ensure(self, image: str, *, auth_file: Path | None, say: Say) -> Image:
        """An image of the store, pulled if it is not there.

        Raises UserMistake for what cannot be pulled by anybody or not by this user, LaunchRefused
        for what another node or a later try may do. `say` hears how it goes.
        """
        try:
            check_image(image)
        except ValueError as error:
            raise UserMistake(str(error)) from None
        found = self._find(image)
        if found:
            return found
        if registry_of(image) == _LOCAL:
            raise LaunchRefused(f"the image {image} is not on this node, and has no registry")
        self._check_registry(image)
        say(f"waiting to pull {image}")
        with self._locks[image]:
            return self._find(image) or self._pull(image, auth_file, say)

    def close(self) -> None:
        """End all pulls; what they fetched whole is kept."""
        self._closed.set()
        for pull in list(self._pulls):
            _kill(pull)

    def _find(self, image: str) -> Image | None:
        shape = "--format={{.Size}} {{.Id}} {{.Config.WorkingDir}}"
        try:
            listed = self.client.ask("image", "inspect", shape, image, timeout_s=_INSPECT_S)
        except PodmanFailed as failed:
            if failed.code is None:
                raise LaunchRefused(f"podman: {failed.words}") from None
            return None
        size, image_id, directory = listed.strip("\n").split(" ", 2)
        return Image(image_id, directory if directory.startswith("/") else "/", int(size))

    def _check_registry(self, image: str) -> None:
        registry = registry_of(image)
        if self.rules.registries and registry not in self.rules.registries:
            known = ", ".join(self.rules.registries)
            raise UserMistake(f"images from {registry} are not allowed on this node, only {known}")

    def _pull(self, image: str, auth_file: Path | None, say: Say) -> Image:
        began_s = self.clock.boottime_s()
        deadline_s = began_s + self.rules.timeout_s
        for number in range(1, self.rules.tries + 1):
            try:
                self._pull_once(image, auth_file, deadline_s, say)
                break
            except PodmanFailed as failed:
                self._judge(image, failed, number, deadline_s)
                pause_s = self.rules.pause_s * 2 ** (number - 1)
                say(f"pulling {image}: {failed.words[:200]}; again in {pause_s:g} s")
                self._closed.wait(pause_s)
        found, took_s = self._find(image), self.clock.boottime_s() - began_s
        if found is None:
            raise LaunchRefused(f"the image {image} is gone after its pull")
        log.info("image_pulled", image=image, bytes=found.size_bytes, s=took_s)
        if found.size_bytes > self.rules.largest_bytes:
            self._drop(found.image_id)
            most = self.rules.largest_bytes
            raise TooLarge(f"the image {image} is {found.size_bytes} bytes; this node takes {most}")
        say(f"pulled {image} in {took_s:.0f} s")
        return found

    def _judge(self, image: str, failed: PodmanFailed, number: int, deadline_s: float) -> None:
        """Returns if it is worth another try."""
        words = failed.words[:300]
        log.warning("image_not_pulled", image=image, attempt=number, error=words)
        if failed.code is not None:
            if _DENIED.search(words):
                raise UserMistake(f"the image {image} may not be pulled: {words}", CANNOT_RUN)
            if _NO_SUCH.search(words):
                raise UserMistake(f"there is no image {image}: {words}", NOT_FOUND)
            if _UNUSABLE.search(words):
                raise UserMistake(f"the image {image} cannot be used: {words}", CANNOT_RUN)
        if (
            self._closed.is_set()
            or number >= self.rules.tries
            or self.clock.boottime_s() >= deadline_s
        ):
            raise LaunchRefused(f"the image {image} could not be pulled: {words}")

    def _pull_once(self, image: str, auth_file: Path | None, deadline_s: float, say: Say) -> None:
        words = ["pull", *([f"--authfile={auth_file}"] if auth_file else []), f"docker://{image}"]
        pull = self.client.start(*words, quiet=False)
        self._pulls.add(pull)
        if self._closed.is_set():  # it was not yet among those that `close` ended
            _kill(pull)
        try:
            said = self._follow(pull, image, deadline_s, say)
        finally:
            _end(pull)
            self._pulls.discard(pull)
        if pull.returncode != 0:
            raise PodmanFailed(last_words("\n".join(said)), pull.returncode)

    def _follow(
        self, pull: "subprocess.Popen[str]", image: str, deadline_s: float, say: Say
    ) -> Sequence[str]:
        """What the pull prints, to its end; ends it when it takes too long or fills the disk."""
        assert pull.stdout is not None
        progress, lines, said_s, text = _Progress(), list[str](), 0.0, ""
        say(f"pulling {image}: {progress}")
        free_before = self._free()
        while True:
            ready, _, _ = select.select([pull.stdout], [], [], _LOOK_S)
            if ready:
                piece = os.read(pull.stdout.fileno(), 65536).decode("utf-8", "replace")
                if not piece:
                    pull.wait()
                    return lines
                *whole, text = (text + piece).split("\n")
                lines = [*lines, *whole][-50:]
                for line in whole:
                    progress.take(line)
            now_s = self.clock.boottime_s()
            if now_s - said_s >= _SAY_AGAIN_S and progress.begun:
                said_s = now_s
                say(f"pulling {image}: {progress}")
            self._check_bounds(image, now_s, deadline_s, free_before)

    def _check_bounds(self, image: str, now_s: float, deadline_s: float, before: int) -> None:
        if now_s >= deadline_s:
            raise PodmanFailed(f"not done within {self.rules.timeout_s:g} s", None)
        free = self._free()
        # Compressed and unpacked at once, for a while.
        if before - free > 2 * self.rules.largest_bytes:
            raise TooLarge(
                f"the image {image} is larger than the {self.rules.largest_bytes} bytes this node takes"
            )
        if free < self.rules.spare_bytes:
            raise LaunchRefused(f"no room for the image {image}: {free} bytes free on this node")

    def _free(self) -> int:
        place = Path(self.client.root or "/var/lib/containers")
        while not place.exists():
            place = place.parent
        return shutil.disk_usage(place).free

    def _drop(self, image_id: str) -> None:
        with suppress(PodmanFailed):
            self.client.ask("rmi", "--force", image_id, timeout_s=_INSPECT_S)


def _kill(pull: "subprocess.Popen[str]") -> None:
    """Kill a pull that still runs, with what it started; its thread does the rest."""
    if pull.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(pull.pid, signal.SIGKILL)


def _end(pull: "subprocess.Popen[str]") -> None:
    _kill(pull)
    pull.wait()
    if pull.stdout is not None and not pull.stdout.closed:
        pull.stdout.close()

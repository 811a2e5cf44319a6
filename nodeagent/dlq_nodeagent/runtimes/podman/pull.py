"""One pull of one image by a podman command, with retries and bounds."""

import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from dlq_common.clock import Clock
from dlq_common.daemon.logs import get_logger
from dlq_common.start_causes import StartCause
from dlq_nodeagent.model.mistakes import CANNOT_RUN, NOT_FOUND, LaunchRefused, NoRoom, UserMistake
from dlq_nodeagent.runtimes.podman.client import (
    PodmanClient,
    PodmanConfig,
    PodmanFailed,
    last_words,
)

_LOOK_S = 0.5
_SAY_AGAIN_S = 5.0
_MIB = 1 << 20
# A registry's errors for a name that nobody can pull; all others may pass elsewhere or later.
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

log = get_logger("nodeagent.images")


class TooLarge(UserMistake):
    """The image is larger than this node takes."""


class NotWanted(LaunchRefused):
    """Its pull was ended from outside: no rank waits for it, or the agent stops."""


class PullEnding:
    """Ends a pull from another thread: running commands are killed, and no further one is begun."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._running: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    @property
    def over(self) -> bool:
        return self._over.is_set()

    def end(self) -> None:
        """End it. Returns at once; repeating it is fine."""
        with self._lock:
            self._over.set()
            if self._running is not None:
                _kill(self._running)

    def wait(self, timeout_s: float) -> None:
        self._over.wait(timeout_s)

    @contextmanager
    def guarding(self, command: "subprocess.Popen[str]") -> Iterator[None]:
        """While the block runs, `end` kills this command; after it the command is gone."""
        with self._lock:
            self._running = command
            if self._over.is_set():
                _kill(command)
        try:
            yield
        finally:
            with self._lock:
                self._running = None
            _reap(command)


@dataclass(slots=True)
class _Progress:
    """Layers of a pull, from podman's output without a terminal, and bytes fetched."""

    scratch: Path
    begun: set[str] = field(default_factory=set)
    done: set[str] = field(default_factory=set)

    def take(self, line: str) -> None:
        found = _BLOB.search(line)
        if found is None:
            return
        self.begun.add(found[1])
        if re.search(r"done|skipped", found[2]):
            self.done.add(found[1])

    def __str__(self) -> str:
        if not self.begun:
            return "asking its registry"
        fetched = _bytes_below(self.scratch)
        return f"{len(self.done)} of {len(self.begun)} layers, {fetched // _MIB} MiB fetched"


@dataclass(slots=True, kw_only=True)
class Puller:
    """Pulls into one store. Thread-safe.

    The fetched data lies below the store's own `tmp` until it is unpacked, in a directory that
    names this agent (`group`). Its size is the progress, and a later agent finds remains by it.
    """

    client: PodmanClient
    rules: PodmanConfig
    clock: Clock
    group: str
    make_room: Callable[[], bool] = lambda: False
    """Takes something out of the store; False when there is nothing to take."""
    pause_s: float = 5.0
    """Before the second try; doubled before each further one."""

    def sweep(self) -> None:
        """End the pulls that an earlier agent has left, and delete their data."""
        try:
            place = self._place()
        except LaunchRefused as refused:
            log.warning("pulls_not_swept", why=str(refused))
            return
        mark = f"TMPDIR={place / self._prefix}".encode()
        for path in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if mark in path.read_bytes():
                    log.warning("pull_left_behind", pid=int(path.parent.name))
                    os.kill(int(path.parent.name), signal.SIGKILL)
        for left in place.glob(f"{self._prefix}*"):
            shutil.rmtree(left, ignore_errors=True)

    def pull(self, image: str, auth_file: Path | None, say: Say, ending: PullEnding) -> None:
        """Pull it. Raises UserMistake for an image that no user, or not this user, can pull;
        LaunchRefused where another node or a later try may succeed.
        """
        began_s = self.clock.boottime_s()
        deadline_s = began_s + self.rules.pull_timeout
        for number in range(1, self.rules.pull_tries + 1):
            try:
                self._pull_once(image, auth_file, deadline_s, say, ending)
                break
            except PodmanFailed as failed:
                if ending.over:
                    raise NotWanted(f"the pull of {image} was ended: no job waits for it") from None
                self._judge(image, failed, number, deadline_s)
                pause_s = self.pause_s * 2 ** (number - 1)
                say(f"pulling {image}: {failed.words[:200]}; again in {pause_s:g} s")
                ending.wait(pause_s)
        took_s = self.clock.boottime_s() - began_s
        log.info("image_pulled", image=image, s=took_s)
        say(f"pulled {image} in {took_s:.0f} s")

    def free(self) -> int:
        """Bytes that the store's disk has left."""
        place = self._place()
        while not place.exists():
            place = place.parent
        return shutil.disk_usage(place).free

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
        if number >= self.rules.pull_tries or self.clock.boottime_s() >= deadline_s:
            raise LaunchRefused(f"the image {image} could not be pulled: {words}", StartCause.IMAGE)

    def _pull_once(
        self, image: str, auth_file: Path | None, deadline_s: float, say: Say, ending: PullEnding
    ) -> None:
        words = ["pull", *([f"--authfile={auth_file}"] if auth_file else []), f"docker://{image}"]
        with self._scratch() as scratch:
            command = self.client.start(*words, quiet=False, more={"TMPDIR": str(scratch)})
            with ending.guarding(command):
                said = self._follow(command, image, _Progress(scratch), deadline_s, say)
        code = command.returncode
        if code < 0:
            raise PodmanFailed(f"podman was killed by {signal.Signals(-code).name}", None)
        if code != 0:
            raise PodmanFailed(last_words("\n".join(said)), code)

    def _follow(
        self,
        command: "subprocess.Popen[str]",
        image: str,
        progress: _Progress,
        deadline_s: float,
        say: Say,
    ) -> Sequence[str]:
        """The output of the pull; ends it when it takes too long or fills the disk."""
        assert command.stdout is not None
        lines, said_s, text = list[str](), 0.0, ""
        looking = select.poll()  # `select` refuses descriptors from 1,024 on
        looking.register(command.stdout, select.POLLIN)
        say(f"pulling {image}: {progress}")
        free_before = self.free()
        while True:
            if looking.poll(_LOOK_S * 1000):
                piece = os.read(command.stdout.fileno(), 65536).decode("utf-8", "replace")
                if not piece:
                    command.wait()
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
            raise PodmanFailed(f"not done within {self.rules.pull_timeout:g} s", None)
        free = self.free()
        # Compressed and unpacked at once, for a while.
        if before - free > 2 * self.rules.largest_image:
            raise TooLarge(
                f"the image {image} is larger than the {self.rules.largest_image} bytes this node "
                "takes"
            )
        if free < self.rules.spare and not self.make_room():
            raise NoRoom(f"no room for the image {image}: {free} bytes free on this node")

    @property
    def _prefix(self) -> str:
        return f"dlq-{self.group}-"

    def _place(self) -> Path:
        try:
            return self.client.store() / "tmp"
        except PodmanFailed as failed:
            raise LaunchRefused(f"podman: {failed.words}", StartCause.IMAGE) from None

    @contextmanager
    def _scratch(self) -> Iterator[Path]:
        place = self._place()
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=self._prefix, dir=place))
        try:
            yield made
        finally:
            shutil.rmtree(made, ignore_errors=True)


def _bytes_below(place: Path) -> int:
    total = 0
    for directory, _, names in os.walk(place):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(directory, name)).st_size
    return total


def _kill(command: "subprocess.Popen[str]") -> None:
    """Kill a running command with its children; its thread does the rest."""
    if command.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(command.pid, signal.SIGKILL)


def _reap(command: "subprocess.Popen[str]") -> None:
    _kill(command)
    command.wait()
    if command.stdout is not None and not command.stdout.closed:
        command.stdout.close()

"""Secrets that a node keeps: found by name, for their user only, and handed over as files.

SECRETS_DIR/users/USER/NAME    a user's own
SECRETS_DIR/everybody/NAME     any user's

Every file belongs to the agent's user and nobody else may read it (mode 0600 or 0400). Its content
is never put on a command line, into an environment, a log, a record or a message.

A running job's secrets lie in RUN_DIR/secrets/JOB.ATTEMPT.RANK, readable by that job's user alone.
RUN_DIR belongs on a tmpfs. They go when the rank has ended, when a later agent finds them without a
rank, and with the host's memory. Credentials of a pull lie in RUN_DIR/auth-*.json while it runs. A
starting agent removes those of a killed one.
"""

import base64
import json
import os
import stat
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

from dlq_common.text.container_names import check_secret, registry_of
from dlq_common.text.names import check_user_name
from dlq_nodeagent.jobtree.files import FILE, opened
from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.mistakes import LaunchRefused, UserMistake

LARGEST_SECRET = 64 * 1024


@dataclass(frozen=True, slots=True)
class Secrets:
    directory: Path
    run_dir: Path

    def read(self, name: str, user: str) -> bytes:
        """A secret's content. UserMistake when this user has none of that name here; LaunchRefused
        when it lies where others could have read or changed it.
        """
        try:
            check_secret(name)
            check_user_name(user)
        except ValueError as error:
            raise UserMistake(str(error)) from None
        for parts in (("users", user, name), ("everybody", name)):
            content = self._read(parts, name)
            if content is not None:
                return content
        raise UserMistake(f"this node keeps no secret {name} for {user}")

    def hand_over(
        self, key: RankKey, names: Iterable[str], *, user: str, uid: int, gid: int
    ) -> Path | None:
        """Files for a rank, made anew; None when it asked for none. Errors as `read`."""
        contents = {name: self.read(name, user) for name in names}
        self.take_back(key)
        if not contents:
            return None
        place = self._place() / str(key)
        place.mkdir(mode=0o700)
        for name, content in contents.items():
            _write_private(place / name, content, 0o400)
            os.chown(place / name, uid, gid)
        os.chown(place, uid, gid)
        place.chmod(0o500)
        return place

    def take_back(self, key: RankKey) -> None:
        """Delete the copies for a rank; no effect without any."""
        place = self.run_dir / "secrets" / str(key)
        with suppress(FileNotFoundError), opened(place) as at:
            for name in os.listdir(at):
                os.unlink(name, dir_fd=at)
            place.rmdir()

    def keep_only(self, living: Collection[RankKey]) -> None:
        """Delete the copies of ended ranks and of all pulls: after a restart, before any pull."""
        for left in self.run_dir.glob("auth-*.json"):
            left.unlink(missing_ok=True)
        place = self.run_dir / "secrets"
        for name in os.listdir(place) if place.is_dir() else ():
            with suppress(LaunchRefused):
                key = RankKey.parse(name)
                if key not in living:
                    self.take_back(key)

    @contextmanager
    def auth_file(self, image: str, name: str, user: str) -> Iterator[Path]:
        """The credentials of an image's registry as podman reads them, for as long as the block.

        The secret is such a file itself (JSON with `auths`), or one line `USER:PASSWORD`.
        """
        content = _auth_json(self.read(name, user), registry_of(image), name)
        self._place()
        path = self.run_dir / f"auth-{token_hex(8)}.json"
        _write_private(path, content, 0o600)
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)

    def _place(self) -> Path:
        place = self.run_dir / "secrets"
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        for directory in (self.run_dir, place):
            directory.chmod(0o700)
        return place

    def _read(self, parts: tuple[str, ...], name: str) -> bytes | None:
        """One file, opened step by step so that no link is followed; None: there is none."""
        with ExitStack() as walked:
            try:
                at = walked.enter_context(opened(self.directory))
            except FileNotFoundError:
                return None
            try:
                for part in parts[:-1]:
                    at = walked.enter_context(opened(part, at=at))
                descriptor = os.open(parts[-1], FILE, dir_fd=at)
            except FileNotFoundError:
                return None
            except OSError as error:
                raise LaunchRefused(f"the secret {name} cannot be read: {error.strerror}") from None
        with os.fdopen(descriptor, "rb") as file:
            _refuse_unless_private(os.fstat(file.fileno()), name)
            return file.read(LARGEST_SECRET)


def _refuse_unless_private(info: os.stat_result, name: str) -> None:
    if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o077:
        raise LaunchRefused(f"the secret {name} must be a plain file of the agent's, mode 0600")
    if info.st_size > LARGEST_SECRET:
        raise LaunchRefused(f"the secret {name} is larger than {LARGEST_SECRET} bytes")


def _auth_json(content: bytes, registry: str, name: str) -> bytes:
    text = content.decode("utf-8", "replace").strip()
    if text.startswith("{"):
        try:
            if isinstance(json.loads(text)["auths"], dict):
                return text.encode()
        except (ValueError, KeyError, TypeError):
            pass
        raise LaunchRefused(f"the secret {name} is no registry credential: JSON without `auths`")
    if "\n" in text or ":" not in text:
        raise LaunchRefused(f"the secret {name} is no registry credential: write USER:PASSWORD")
    word = base64.b64encode(text.encode()).decode()
    return json.dumps({"auths": {registry: {"auth": word}}}).encode()


def _write_private(path: Path, content: bytes, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, mode), "wb") as file:
        file.write(content)

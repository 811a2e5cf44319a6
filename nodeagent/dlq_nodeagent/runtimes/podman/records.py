"""The agent's records of its pulled images: their permitted users, and their last use.

A container store asks nobody for a credential: an image pulled with one user's credential lies
there for all. An image that was pulled with a credential is only for users who have shown that they
may pull it (as Kubernetes does since KEP-2535). An image that the agent has not pulled is the
operator's and for everybody, unless its repository was ever pulled with a credential. Then an
interrupted pull may have brought it.
"""

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from dlq_common.errors import ConfigError
from dlq_nodeagent.state.state_dir import replace_file

_VERSION = 1
_USED_AGAIN_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PulledImage:
    """An image by its id. `used_s` is UTC seconds."""

    public: bool = False
    """True if it was pulled without a credential of a job's."""
    users: frozenset[str] = frozenset()
    """Users that pulled it with a credential of theirs."""
    used_s: float = 0.0


@dataclass(slots=True, kw_only=True)
class ImageRecords:
    """Durable in one file of the agent's state directory. Thread-safe."""

    path: Path
    _images: dict[str, PulledImage] = field(default_factory=dict)
    _private: set[str] = field(default_factory=set)
    _written: Mapping[str, PulledImage] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        try:
            content = json.loads(self.path.read_bytes())
            self._private = set(map(str, content["private_repositories"]))
            self._images = {str(name): _image(one) for name, one in content["images"].items()}
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(
                f"{self.path}: the record of the users of images cannot be read ({error})",
                hint="remove the images of registries from podman's store, then this file",
                key="node.state_dir",
            ) from None

    def allows(self, image_id: str, repository: str, user: str) -> bool:
        """Whether this user may use an image of the store by a name in that repository."""
        with self._lock:
            known = self._images.get(image_id)
            if known is None:
                return repository not in self._private
            return known.public or user in known.users

    def begin(self, repository: str) -> None:
        """A pull with a credential begins: its image is private, also after a failure. OSError."""
        with self._lock:
            if repository not in self._private:
                self._private.add(repository)
                self._write()

    def pulled(self, image_id: str, *, user: str, with_secret: bool, now_s: float) -> None:
        """The registry has given an image to this user. OSError: it is not remembered."""
        with self._lock:
            known = self._images.get(image_id, PulledImage())
            users = known.users | {user} if with_secret else known.users
            public = known.public or not with_secret
            self._images[image_id] = PulledImage(public=public, users=users, used_s=now_s)
            self._write()

    def used(self, image_id: str, now_s: float) -> None:
        """A rank is given the image. Written now and then only: a wrong hour does no harm."""
        with self._lock:
            known = self._images.get(image_id)
            if known is None:
                return
            self._images[image_id] = replace(known, used_s=now_s)
            written = self._written.get(image_id, known)
            if abs(now_s - written.used_s) >= _USED_AGAIN_S:
                self._write()

    def removed(self, image_id: str) -> None:
        """Note that an image is gone. OSError: it is forgotten in memory only."""
        with self._lock:
            if self._images.pop(image_id, None) is not None:
                self._write()

    def least_recently_used(self) -> list[tuple[str, float]]:
        """Ids and last uses of the images that the agent has pulled, the oldest first."""
        with self._lock:
            return sorted(
                ((name, image.used_s) for name, image in self._images.items()),
                key=lambda one: (one[1], one[0]),
            )

    def _write(self) -> None:
        content = {
            "v": _VERSION,
            "private_repositories": sorted(self._private),
            "images": {
                name: {"public": one.public, "users": sorted(one.users), "used_s": one.used_s}
                for name, one in sorted(self._images.items())
            },
        }
        replace_file(self.path, json.dumps(content).encode())
        self._written = dict(self._images)


def _image(content: Mapping[str, object]) -> PulledImage:
    users, used_s = content["users"], content["used_s"]
    if not isinstance(users, list) or not isinstance(used_s, int | float):
        raise TypeError("an image without users or time")
    return PulledImage(
        public=content["public"] is True, users=frozenset(map(str, users)), used_s=float(used_s)
    )

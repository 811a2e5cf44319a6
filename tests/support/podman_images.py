"""An agent's images over a store of the test's own, and a registry that podman is told to trust."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dlq_common.clock import SteadyClock
from dlq_common.daemon.config import Bytes
from dlq_nodeagent.runtimes.podman.client import PodmanConfig
from dlq_nodeagent.runtimes.podman.images import Image, Images
from dlq_nodeagent.runtimes.podman.pull import PullEnding, Puller, Say
from dlq_nodeagent.runtimes.podman.pulls import PullWish
from dlq_nodeagent.runtimes.podman.records import ImageRecords
from dlq_nodeagent.runtimes.podman.secrets import Secrets
from support.podman_box import PodmanStore
from support.small_registry import SmallRegistry, small_registry

CANARY = "canary-7f3a91"
RULES = PodmanConfig(spare=Bytes(0))


@contextmanager
def trusted_registry(at: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallRegistry]:
    with small_registry() as running:
        allowed = at / "registries.conf"
        allowed.write_text(f'[[registry]]\nlocation = "{running.name}"\ninsecure = true\n')
        monkeypatch.setenv("CONTAINERS_REGISTRIES_CONF", str(allowed))
        yield running


def node_secrets(at: Path) -> Secrets:
    """Alice has the registry's password, and Bob a wrong one."""
    for user, password in (("alice", CANARY), ("bob", "wrong")):
        place = at / "secrets/users" / user
        place.mkdir(parents=True, exist_ok=True)
        (place / "registry").write_text(f"{user}:{password}\n")
        (place / "registry").chmod(0o600)
    return Secrets(at / "secrets", at / "run")


def agents_images(store: PodmanStore, at: Path, rules: PodmanConfig = RULES) -> Images:
    """The images of an agent with its state at that directory; every call is a new life of it."""
    clock = SteadyClock()
    return Images(
        client=store.client,
        rules=rules,
        clock=clock,
        records=ImageRecords(path=at / "images.json"),
        secrets=node_secrets(at),
        puller=Puller(client=store.client, rules=rules, clock=clock, group="test", pause_s=0.01),
    )


def ensure(
    images: Images,
    image: str,
    *,
    user: str = "alice",
    secret: str = "",
    say: Say = lambda detail: None,
    ending: PullEnding | None = None,
) -> Image:
    """As the agent does: what may not be used is fetched."""
    found = images.usable(image, user)
    if found is None:
        images.fetch(PullWish(image, user, secret), say, ending or PullEnding())
        found = images.usable(image, user)
    assert found is not None
    return found


def pulls_of(image: str) -> list[int]:
    """Processes that pull this image now."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"pull" in words and f"docker://{image}".encode() in words:
            found.append(int(path.parent.name))
    return found

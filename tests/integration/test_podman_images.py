"""Images pulled from a registry: progress, retries, limits, how a pull ends, and whose fault it
is.
"""

import io
import json
import os
import shutil
import signal
import socket
import subprocess
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pytest

from dlq_common.clock import SteadyClock
from dlq_common.daemon.config import Bytes, Seconds
from dlq_nodeagent.model.mistakes import CANNOT_RUN, NOT_FOUND, LaunchRefused, UserMistake
from dlq_nodeagent.runtimes.podman.clearing import Clearing
from dlq_nodeagent.runtimes.podman.client import PodmanConfig
from dlq_nodeagent.runtimes.podman.images import Images
from dlq_nodeagent.runtimes.podman.pull import NotWanted, PullEnding
from support.podman_box import PodmanStore, make_root_filesystem, needs_podman, podman_store
from support.podman_images import RULES, agents_images, ensure, pulls_of, trusted_registry
from support.small_registry import SmallRegistry, layer_of
from support.waiting import wait_until

pytestmark = [pytest.mark.podman, needs_podman]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PodmanStore]:
    with podman_store(tmp_path_factory.mktemp("podman")) as made:
        yield made


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallRegistry]:
    with trusted_registry(tmp_path, monkeypatch) as running:
        yield running


@pytest.fixture
def layer(tmp_path: Path) -> bytes:
    return layer_of(make_root_filesystem(tmp_path / "rootfs"))


class MakeImages(Protocol):
    def __call__(self, rules: PodmanConfig = RULES) -> Images: ...


@pytest.fixture
def images(store: PodmanStore, tmp_path: Path) -> MakeImages:
    return lambda rules=RULES: agents_images(store, tmp_path, rules)


def test_an_image_is_pulled_once_and_its_progress_is_told(
    images: MakeImages, registry: SmallRegistry, layer: bytes
) -> None:
    registry.put("team/train", "1", layer)
    said: list[str] = []
    name = f"{registry.name}/team/train:1"
    found = ensure(images(), name, say=said.append)
    assert said[0] == f"pulling {name}: asking its registry"
    assert any("of 1 layers" in words for words in said)
    assert said[-1].startswith(f"pulled {name} in ")
    asked = len(registry.requests)
    assert ensure(images(), name) == found
    assert len(registry.requests) == asked


def test_an_image_by_its_digest_is_that_image(
    images: MakeImages, store: PodmanStore, registry: SmallRegistry, layer: bytes
) -> None:
    digest = registry.put("team/pinned", "1", layer)
    name = f"{registry.name}/team/pinned@{digest}"
    found = ensure(images(), name)
    assert (
        store.client.ask("image", "inspect", "--format={{.Digest}}", found.image_id).strip()
        == digest
    )
    assert ensure(images(), name) == found


@pytest.mark.parametrize("path", ["no/such:1", "team/train:9", "team/train@sha256:" + "0" * 64])
def test_an_image_that_is_not_there_is_the_users_mistake(
    images: MakeImages, registry: SmallRegistry, path: str
) -> None:
    with pytest.raises(UserMistake, match="there is no image") as caught:
        ensure(images(), f"{registry.name}/{path}")
    assert caught.value.exit_code == NOT_FOUND


def test_a_registry_that_is_down_is_not_the_users_mistake_and_is_tried_again(
    images: MakeImages, registry: SmallRegistry, layer: bytes
) -> None:
    registry.put("team/later", "1", layer)
    name = f"{registry.name}/team/later:1"
    registry.failures = 10_000
    said: list[str] = []
    with pytest.raises(LaunchRefused, match="could not be pulled"):
        ensure(images(replace(RULES, pull_tries=2)), name, say=said.append)
    assert sum("again in" in words for words in said) == 1
    registry.failures = 0
    assert ensure(images(), name)


def test_a_pull_that_takes_too_long_is_given_up_and_leaves_no_process(
    images: MakeImages, registry: SmallRegistry, layer: bytes
) -> None:
    registry.put("team/slow", "1", layer + b"slow")
    registry.hold_blobs.clear()
    name = f"{registry.name}/team/slow:1"
    with pytest.raises(LaunchRefused, match="not done within 1 s"):
        ensure(images(replace(RULES, pull_timeout=Seconds(1.0))), name)
    assert pulls_of(name) == []


def test_a_pull_that_nobody_waits_for_is_ended_at_once_and_leaves_nothing(
    images: MakeImages, registry: SmallRegistry, layer: bytes, store: PodmanStore
) -> None:
    registry.put("team/stop", "1", layer + b"stop")
    registry.hold_blobs.clear()
    name, ending = f"{registry.name}/team/stop:1", PullEnding()
    with ThreadPoolExecutor() as pool:
        pull = pool.submit(ensure, images(), name, ending=ending)
        wait_until(lambda: pulls_of(name), what="the pull")
        ending.end()
        with pytest.raises(NotWanted, match="no job waits for it"):
            pull.result(30)
    assert pulls_of(name) == []
    assert list((store.at / "store/tmp").glob("dlq-*")) == []


def test_a_pull_that_is_killed_from_outside_is_not_the_users_mistake_and_says_so(
    images: MakeImages, registry: SmallRegistry, layer: bytes
) -> None:
    registry.put("team/killed", "1", layer + b"killed")
    registry.hold_blobs.clear()
    name = f"{registry.name}/team/killed:1"
    with ThreadPoolExecutor() as pool:
        pull = pool.submit(ensure, images(replace(RULES, pull_tries=1)), name)
        for pid in wait_until(lambda: pulls_of(name), what="the pull"):
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(LaunchRefused, match="podman was killed by SIGKILL"):
            pull.result(30)


def test_the_next_agent_ends_the_pulls_of_one_that_was_killed_and_clears_what_they_fetched(
    images: MakeImages, registry: SmallRegistry, layer: bytes, store: PodmanStore
) -> None:
    registry.put("team/orphan", "1", layer + b"orphan")
    registry.hold_blobs.clear()
    name, dead = f"{registry.name}/team/orphan:1", images(replace(RULES, pull_tries=1))
    with ThreadPoolExecutor() as pool:
        pull = pool.submit(ensure, dead, name)
        wait_until(lambda: pulls_of(name), what="the pull")
        wait_until(
            lambda: list((store.at / "store/tmp").glob("dlq-test-*")), what="what it fetches"
        )
        images().puller.sweep()
        with pytest.raises(LaunchRefused):
            pull.result(30)
    assert pulls_of(name) == []
    assert list((store.at / "store/tmp").glob("dlq-*")) == []


def test_an_image_that_is_too_large_is_refused_and_removed(
    images: MakeImages, store: PodmanStore, registry: SmallRegistry, layer: bytes, tmp_path: Path
) -> None:
    big = tmp_path / "big"
    big.mkdir()
    (big / "zeros").write_bytes(bytes(64 << 20))  # small to send, large to keep
    registry.put("team/bomb", "1", layer, layer_of(big))
    rules = replace(RULES, largest_image=Bytes(16 << 20))
    with pytest.raises(UserMistake, match="bytes"):
        ensure(images(rules), f"{registry.name}/team/bomb:1")
    assert "bomb" not in store.client.ask("images", "--format={{.Repository}}")


def test_a_disk_without_room_is_not_the_users_mistake(
    images: MakeImages, registry: SmallRegistry, layer: bytes
) -> None:
    registry.put("team/full", "1", layer + b"full")
    rules = replace(RULES, spare=Bytes(1 << 60))
    with pytest.raises(LaunchRefused, match="no room"):
        ensure(images(rules), f"{registry.name}/team/full:1")


def test_room_is_made_by_images_that_no_job_has_used_for_long(
    images: MakeImages, store: PodmanStore, registry: SmallRegistry, layer: bytes
) -> None:
    agent = images()
    found = {}
    for number, name in enumerate(("used", "old", "older")):
        registry.put(f"team/{name}", "1", layer + name.encode())
        found[name] = ensure(agent, f"{registry.name}/team/{name}:1").image_id
        agent.records.pulled(found[name], user="alice", with_secret=False, now_s=9.0 - number)
    clearing = Clearing(client=store.client, records=agent.records, clock=SteadyClock(), keep_s=0.0)
    clearing.in_use = lambda: frozenset({found["used"]})
    store.client.ask("tag", found["old"], f"{registry.name}/team/old:latest")
    assert clearing.make_room()
    assert agent.usable(f"{registry.name}/team/older:1", "alice") is None
    assert agent.usable(f"{registry.name}/team/old:1", "alice")
    agent.records.pulled(found["old"], user="alice", with_secret=False, now_s=1.0)
    assert clearing.make_room()
    assert agent.usable(f"{registry.name}/team/old:latest", "alice") is None
    assert not clearing.make_room()
    assert agent.usable(f"{registry.name}/team/used:1", "alice")


def test_only_the_registries_of_the_operator_are_asked(
    images: MakeImages, registry: SmallRegistry
) -> None:
    rules = replace(RULES, registries=("registry.example",))
    with pytest.raises(UserMistake, match=r"only registry\.example"):
        ensure(images(rules), f"{registry.name}/team/x:1")
    assert registry.requests == []


def test_a_local_image_is_not_looked_for_elsewhere(images: MakeImages) -> None:
    assert ensure(images(), "localhost/dlq-test:1")
    with pytest.raises(LaunchRefused, match="not on this node"):
        ensure(images(), "localhost/other:1")


@pytest.mark.parametrize("path", ["run", "tmp"])
def test_an_image_that_no_node_can_start_is_the_users_mistake(
    images: MakeImages, registry: SmallRegistry, tmp_path: Path, path: str
) -> None:
    root = make_root_filesystem(tmp_path / "hostile")
    (root / path).rmdir()
    (root / path).symlink_to("/proc")
    registry.put(f"team/no-{path}", "1", layer_of(root))
    with pytest.raises(UserMistake, match=f"its /{path} is a link to /proc") as caught:
        ensure(images(), f"{registry.name}/team/no-{path}:1")
    assert caught.value.exit_code == CANNOT_RUN


def test_a_layer_with_a_path_that_leads_out_of_the_image_writes_nothing_there(
    images: MakeImages, registry: SmallRegistry, layer: bytes, tmp_path: Path
) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name in ("../../../../../../../dlq-escaped", "/dlq-escaped", "a/../../dlq-escaped"):
            entry = tarfile.TarInfo(name)
            entry.size = 4
            tar.addfile(entry, io.BytesIO(b"evil"))
        link = tarfile.TarInfo("out")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path)
        tar.addfile(link)
        through = tarfile.TarInfo("out/dlq-escaped")
        through.size = 4
        tar.addfile(through, io.BytesIO(b"evil"))
    registry.put("team/escape", "1", layer, out.getvalue())
    with suppress(UserMistake):
        ensure(images(), f"{registry.name}/team/escape:1")
    assert not Path("/dlq-escaped").exists()
    assert not (tmp_path / "dlq-escaped").exists()


@pytest.mark.skipif(shutil.which("docker-registry") is None, reason="no docker-registry")
def test_a_real_registry_serves_what_was_pushed_to_it(
    images: MakeImages, store: PodmanStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = tmp_path / "config.yml"
    config.write_text(
        json.dumps(
            {
                "version": 0.1,
                "log": {"level": "error"},
                "storage": {"filesystem": {"rootdirectory": str(tmp_path / "registry")}},
                "http": {"addr": f"127.0.0.1:{port}"},
            }
        )
    )
    allowed = tmp_path / "registries.conf"
    allowed.write_text(f'[[registry]]\nlocation = "localhost:{port}"\ninsecure = true\n')
    monkeypatch.setenv("CONTAINERS_REGISTRIES_CONF", str(allowed))
    with (tmp_path / "registry.log").open("wb") as log:
        serving = subprocess.Popen(
            ["docker-registry", "serve", str(config)],
            stdout=log,
            stderr=log,
            env={"PATH": os.defpath},
        )
    try:
        wait_until(lambda: _listens(port), what="the registry")
        name = f"localhost:{port}/team/real:1"
        store.client.ask("push", "localhost/dlq-test:1", f"docker://{name}", timeout_s=60)
        assert ensure(images(), name)
    finally:
        serving.kill()
        serving.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0

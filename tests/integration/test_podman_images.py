"""Images pulled from a registry: progress, retries, limits, credentials, and whose fault a failure is."""

import io
import json
import os
import shutil
import socket
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from dlq_common.clock import SteadyClock
from dlq_nodeagent.model.mistakes import CANNOT_RUN, NOT_FOUND, UserMistake
from dlq_nodeagent.runtimes.launch import AttemptKey, LaunchRefused
from dlq_nodeagent.runtimes.podman_images import Image, Images, PullRules
from dlq_nodeagent.runtimes.podman_secrets import Secrets
from support.podman_box import PodmanStore, make_root_filesystem, needs_podman, podman_store
from support.small_registry import SmallRegistry, layer_of, small_registry
from support.waiting import wait_until

pytestmark = [pytest.mark.podman, needs_podman]

KEY = AttemptKey("17", 1, 0)
CANARY = "canary-7f3a91"
RULES = PullRules(pause_s=0.01, spare_bytes=0)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PodmanStore]:
    with podman_store(tmp_path_factory.mktemp("podman")) as made:
        yield made


@pytest.fixture
def registry(
    tmp_path: Path, store: PodmanStore, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SmallRegistry]:
    with small_registry() as running:
        allowed = tmp_path / "registries.conf"
        allowed.write_text(f'[[registry]]\nlocation = "{running.name}"\ninsecure = true\n')
        monkeypatch.setenv("CONTAINERS_REGISTRIES_CONF", str(allowed))
        yield running


@pytest.fixture
def layer(tmp_path: Path) -> bytes:
    return layer_of(make_root_filesystem(tmp_path / "rootfs"))


def images(store: PodmanStore, rules: PullRules = RULES) -> Images:
    return Images(client=store.client, rules=rules, clock=SteadyClock())


def ignore(detail: str) -> None:
    pass


def test_an_image_is_pulled_once_and_its_progress_is_told(
    store: PodmanStore, registry: SmallRegistry, layer: bytes
) -> None:
    registry.put("team/train", "1", layer)
    said: list[str] = []
    name = f"{registry.name}/team/train:1"
    found = images(store).ensure(name, auth_file=None, say=said.append)
    assert said[0] == f"waiting to pull {name}"
    assert said[1] == f"pulling {name}: asking its registry"
    assert any("of 1 layers" in words for words in said)
    assert said[-1].startswith(f"pulled {name} in ")
    asked = len(registry.requests)
    assert images(store).ensure(name, auth_file=None, say=ignore) == found
    assert len(registry.requests) == asked


def test_an_image_by_its_digest_is_that_image(
    store: PodmanStore, registry: SmallRegistry, layer: bytes
) -> None:
    digest = registry.put("team/pinned", "1", layer)
    name = f"{registry.name}/team/pinned@{digest}"
    found = images(store).ensure(name, auth_file=None, say=ignore)
    assert (
        store.client.ask("image", "inspect", "--format={{.Digest}}", found.image_id).strip()
        == digest
    )
    assert images(store).ensure(name, auth_file=None, say=ignore) == found


def test_two_ranks_that_want_one_image_pull_it_once(
    store: PodmanStore, registry: SmallRegistry, layer: bytes
) -> None:
    registry.put("team/shared", "1", layer)
    pulling, found = images(store), list[Image]()
    name = f"{registry.name}/team/shared:1"
    threads = [
        threading.Thread(
            target=lambda: found.append(pulling.ensure(name, auth_file=None, say=ignore))
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert len(found) == 4
    assert sum("manifests/1" in path for path in registry.requests) == 1


@pytest.mark.parametrize("path", ["no/such:1", "team/train:9", "team/train@sha256:" + "0" * 64])
def test_an_image_that_is_not_there_is_the_users_mistake(
    store: PodmanStore, registry: SmallRegistry, path: str
) -> None:
    with pytest.raises(UserMistake, match="there is no image") as caught:
        images(store).ensure(f"{registry.name}/{path}", auth_file=None, say=ignore)
    assert caught.value.exit_code == NOT_FOUND


def test_a_registry_that_is_down_is_not_the_users_mistake_and_is_tried_again(
    store: PodmanStore, registry: SmallRegistry, layer: bytes
) -> None:
    registry.put("team/later", "1", layer)
    name = f"{registry.name}/team/later:1"
    registry.failures = 10_000
    said: list[str] = []
    with pytest.raises(LaunchRefused, match="could not be pulled"):
        images(store, replace(RULES, tries=2)).ensure(name, auth_file=None, say=said.append)
    assert sum("again in" in words for words in said) == 1
    registry.failures = 0
    assert images(store).ensure(name, auth_file=None, say=ignore)


def test_a_pull_that_takes_too_long_is_given_up_and_leaves_no_process(
    store: PodmanStore, registry: SmallRegistry, layer: bytes
) -> None:
    registry.put("team/slow", "1", layer + b"slow")
    registry.hold_blobs.clear()
    name = f"{registry.name}/team/slow:1"
    with pytest.raises(LaunchRefused, match="not done within 1 s"):
        images(store, replace(RULES, timeout_s=1.0)).ensure(name, auth_file=None, say=ignore)
    assert pulls_of(name) == []


def test_an_agent_that_stops_ends_its_pulls(
    store: PodmanStore, registry: SmallRegistry, layer: bytes
) -> None:
    registry.put("team/stop", "1", layer + b"stop")
    registry.hold_blobs.clear()
    name, pulling = f"{registry.name}/team/stop:1", images(store)
    refusals: list[LaunchRefused] = []

    def pull() -> None:
        try:
            pulling.ensure(name, auth_file=None, say=ignore)
        except LaunchRefused as refused:
            refusals.append(refused)

    thread = threading.Thread(target=pull)
    thread.start()
    wait_until(lambda: pulls_of(name), what="the pull")
    pulling.close()
    thread.join(30)
    assert len(refusals) == 1
    assert pulls_of(name) == []


def test_an_image_that_is_too_large_is_refused_and_removed(
    store: PodmanStore, registry: SmallRegistry, layer: bytes, tmp_path: Path
) -> None:
    big = tmp_path / "big"
    big.mkdir()
    (big / "zeros").write_bytes(bytes(64 << 20))  # small to send, large to keep
    registry.put("team/bomb", "1", layer, layer_of(big))
    rules = replace(RULES, largest_bytes=16 << 20)
    with pytest.raises(UserMistake, match="bytes"):
        images(store, rules).ensure(f"{registry.name}/team/bomb:1", auth_file=None, say=ignore)
    assert "bomb" not in store.client.ask("images", "--format={{.Repository}}")


def test_a_disk_without_room_is_not_the_users_mistake(
    store: PodmanStore, registry: SmallRegistry, layer: bytes
) -> None:
    registry.put("team/full", "1", layer + b"full")
    rules = replace(RULES, spare_bytes=1 << 60)
    with pytest.raises(LaunchRefused, match="no room"):
        images(store, rules).ensure(f"{registry.name}/team/full:1", auth_file=None, say=ignore)


def test_only_the_registries_of_the_operator_are_asked(
    store: PodmanStore, registry: SmallRegistry
) -> None:
    rules = replace(RULES, registries=("registry.example",))
    with pytest.raises(UserMistake, match=r"only registry\.example"):
        images(store, rules).ensure(f"{registry.name}/team/x:1", auth_file=None, say=ignore)
    assert registry.requests == []


def test_a_local_image_is_not_looked_for_elsewhere(store: PodmanStore) -> None:
    assert images(store).ensure("localhost/dlq-test:1", auth_file=None, say=ignore)
    with pytest.raises(LaunchRefused, match="not on this node"):
        images(store).ensure("localhost/other:1", auth_file=None, say=ignore)


def test_a_layer_with_a_path_that_leads_out_of_the_image_writes_nothing_there(
    store: PodmanStore, registry: SmallRegistry, layer: bytes, tmp_path: Path
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
        images(store).ensure(f"{registry.name}/team/escape:1", auth_file=None, say=ignore)
    assert not Path("/dlq-escaped").exists()
    assert not (tmp_path / "dlq-escaped").exists()


# ---- credentials


@pytest.fixture
def secrets(tmp_path: Path) -> Secrets:
    place = tmp_path / "secrets/users/alice"
    place.mkdir(parents=True)
    (place / "registry").write_text(f"alice:{CANARY}\n")
    (place / "registry").chmod(0o600)
    return Secrets(tmp_path / "secrets", tmp_path / "run")


def test_credentials_reach_the_registry_and_nothing_else(
    store: PodmanStore, registry: SmallRegistry, layer: bytes, secrets: Secrets, tmp_path: Path
) -> None:
    registry.put("team/private", "1", layer + b"private")
    registry.password = f"alice:{CANARY}"
    registry.hold_blobs.clear()
    name, said, found = f"{registry.name}/team/private:1", list[str](), list[Image]()

    def pull() -> None:
        with secrets.auth_file(KEY, name, "registry", "alice") as auth:
            assert auth.stat().st_mode & 0o777 == 0o600
            found.append(images(store).ensure(name, auth_file=auth, say=said.append))

    thread = threading.Thread(target=pull)
    thread.start()
    pulls = wait_until(lambda: pulls_of(name), what="the pull")
    for pid in pulls:
        for part in ("cmdline", "environ"):
            assert CANARY not in Path(f"/proc/{pid}/{part}").read_text(errors="replace")
    registry.hold_blobs.set()
    thread.join(60)
    assert len(found) == 1
    assert CANARY not in "\n".join(said)
    assert list((tmp_path / "run").glob("auth*")) == []
    grep = ["grep", "-r", "-l", CANARY, str(store.at / "store"), str(store.at / "run")]
    assert subprocess.run(grep, capture_output=True, check=False).stdout == b""


def test_wrong_credentials_are_the_users_mistake_in_the_registrys_words(
    store: PodmanStore, registry: SmallRegistry, layer: bytes, secrets: Secrets
) -> None:
    registry.put("team/closed", "1", layer)
    registry.password = "alice:something else"
    name = f"{registry.name}/team/closed:1"
    with (
        secrets.auth_file(KEY, name, "registry", "alice") as auth,
        pytest.raises(UserMistake, match="may not be pulled") as caught,
    ):
        images(store).ensure(name, auth_file=auth, say=ignore)
    assert caught.value.exit_code == CANNOT_RUN
    assert CANARY not in str(caught.value)


@pytest.mark.skipif(shutil.which("docker-registry") is None, reason="no docker-registry")
def test_a_real_registry_serves_what_was_pushed_to_it(
    store: PodmanStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
        assert images(store).ensure(name, auth_file=None, say=ignore)
    finally:
        serving.kill()
        serving.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


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

"""Credentials of a registry: where they are and where not, and who may use what they have
brought.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dlq_nodeagent.model.mistakes import CANNOT_RUN, LaunchRefused, UserMistake
from support.canaries import files_with, forms_of
from support.podman_box import PodmanStore, make_root_filesystem, needs_podman, podman_store
from support.podman_images import CANARY, agents_images, ensure, pulls_of, trusted_registry
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
        running.password = f"alice:{CANARY}"
        yield running


@pytest.fixture
def private(registry: SmallRegistry, tmp_path: Path) -> str:
    layer = layer_of(make_root_filesystem(tmp_path / "rootfs"))
    # Another test's layer would be in the store, and never asked for.
    registry.put("team/private", "1", layer + tmp_path.name.encode())
    return f"{registry.name}/team/private:1"


def test_credentials_reach_the_registry_and_nothing_else(
    store: PodmanStore, registry: SmallRegistry, private: str, tmp_path: Path
) -> None:
    registry.hold_blobs.clear()
    said: list[str] = []
    with ThreadPoolExecutor() as pool:
        pull = pool.submit(
            ensure, agents_images(store, tmp_path), private, secret="registry", say=said.append
        )
        pulls = wait_until(lambda: pulls_of(private), what="the pull")
        auth = next((tmp_path / "run").glob("auth-*"))
        assert auth.stat().st_mode & 0o777 == 0o600
        assert files_with(CANARY, [auth]) == [str(auth)]
        for pid in pulls:
            for part in ("cmdline", "environ"):
                seen = Path(f"/proc/{pid}/{part}").read_text(errors="replace")
                assert not [form for form in forms_of(CANARY) if form in seen]
        registry.hold_blobs.set()
        assert pull.result(60)
    assert CANARY not in "\n".join(said)
    places = [tmp_path / "run", tmp_path / "images.json", store.at / "store", store.run_root]
    assert files_with(CANARY, places) == []


def test_wrong_credentials_are_the_users_mistake_in_the_registrys_words(
    store: PodmanStore, private: str, tmp_path: Path
) -> None:
    with pytest.raises(UserMistake, match="may not be pulled") as caught:
        ensure(agents_images(store, tmp_path), private, user="bob", secret="registry")
    assert caught.value.exit_code == CANNOT_RUN
    assert CANARY not in str(caught.value)


def test_what_one_user_has_pulled_with_a_credential_is_not_everybodys(
    store: PodmanStore, registry: SmallRegistry, private: str, tmp_path: Path
) -> None:
    found = ensure(agents_images(store, tmp_path), private, secret="registry")
    asked = len(registry.requests)
    assert ensure(agents_images(store, tmp_path), private, secret="registry") == found
    assert len(registry.requests) == asked
    for secret in ("registry", ""):
        with pytest.raises(UserMistake, match="may not be pulled") as caught:
            ensure(agents_images(store, tmp_path), private, user="bob", secret=secret)
        assert caught.value.exit_code == CANNOT_RUN
    everybodys = tmp_path / "secrets/everybody"
    everybodys.mkdir()
    (everybodys / "shared").write_text(f"alice:{CANARY}")
    (everybodys / "shared").chmod(0o600)
    assert ensure(agents_images(store, tmp_path), private, user="carol", secret="shared") == found
    assert ensure(agents_images(store, tmp_path), private, user="carol") == found


def test_a_registry_that_is_down_proves_nothing(
    store: PodmanStore, registry: SmallRegistry, private: str, tmp_path: Path
) -> None:
    ensure(agents_images(store, tmp_path), private, secret="registry")
    registry.password, registry.failures = "", 10_000
    with pytest.raises(LaunchRefused, match="could not be pulled"):
        ensure(agents_images(store, tmp_path), private, user="bob", secret="registry")
    assert ensure(agents_images(store, tmp_path), private)


def test_an_image_that_anybody_may_pull_is_for_everybody(
    store: PodmanStore, registry: SmallRegistry, private: str, tmp_path: Path
) -> None:
    found = ensure(agents_images(store, tmp_path), private, secret="registry")
    registry.password = ""
    assert ensure(agents_images(store, tmp_path), private, user="bob") == found
    registry.failures = 10_000
    assert ensure(agents_images(store, tmp_path), private, user="dave") == found

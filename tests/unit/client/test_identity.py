"""The identity directory: what is read back, who may read it, and when it is due for renewal."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from dlq_client.line.identity import (
    CLUSTER_FILE,
    KEY_FILE,
    NEXT_KEY_FILE,
    Identity,
    default_home,
    load_identity,
    save_identity,
)
from dlq_common.errors import ConfigError
from dlq_common.identity import files as identity_files
from dlq_common.identity.pki import Authority, Role, new_key_and_csr

NOW_S = 1_800_000_000.0
DAY_S = 86_400.0


def an_identity(name: str = "alice", now_s: float = NOW_S) -> Identity:
    authority = Authority.create("lab", NOW_S)
    made = new_key_and_csr(name)
    return Identity(
        key=made.key,
        certificate=authority.sign_user(made.request, name, Role.USER, now_s),
        ca=authority.certificate_pem(),
        address="127.0.0.1:7320",
        cluster="lab",
        user=name,
        role="user",
        issued_s=now_s,
        expires_s=now_s + 30 * DAY_S,
    )


def test_what_was_saved_is_loaded_and_only_the_owner_may_read_the_key(tmp_path: Path) -> None:
    identity = an_identity()
    save_identity(tmp_path / "home", identity)
    assert load_identity(tmp_path / "home") == identity
    assert stat.S_IMODE((tmp_path / "home" / KEY_FILE).stat().st_mode) == 0o600


def test_nobody_is_logged_in_where_nothing_is(tmp_path: Path) -> None:
    assert load_identity(tmp_path / "none") is None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"address": 3}', b"\xff"])
def test_a_damaged_directory_says_how_to_mend_it(tmp_path: Path, content: bytes) -> None:
    save_identity(tmp_path, an_identity())
    (tmp_path / CLUSTER_FILE).write_bytes(content)
    with pytest.raises(ConfigError, match="is damaged") as caught:
        load_identity(tmp_path)
    assert "dlq login" in caught.value.hint


def test_a_key_that_others_may_read_is_not_used(tmp_path: Path) -> None:
    save_identity(tmp_path, an_identity())
    (tmp_path / KEY_FILE).chmod(0o644)
    with pytest.raises(ConfigError, match="other users may use this key") as caught:
        load_identity(tmp_path)
    assert f"chmod 600 {tmp_path / KEY_FILE}" in caught.value.hint
    (tmp_path / KEY_FILE).chmod(0o400)
    assert load_identity(tmp_path) is not None


def test_renewal_is_due_at_two_thirds_of_the_life() -> None:
    identity = an_identity()
    assert not identity.renewal_due(NOW_S + 20 * DAY_S - 1)
    assert identity.renewal_due(NOW_S + 20 * DAY_S)
    assert identity.is_valid(NOW_S + 30 * DAY_S - 1)
    assert not identity.is_valid(NOW_S + 30 * DAY_S)


def test_a_save_that_was_cut_short_is_completed_from_the_certificate(tmp_path: Path) -> None:
    save_identity(tmp_path, an_identity())
    fresh = an_identity("bob", NOW_S + DAY_S)
    # The crash: key and certificate are written, the rename and the facts are missing.
    identity_files.write_private(tmp_path / NEXT_KEY_FILE, fresh.key)
    identity_files.write_public(tmp_path / "identity.crt", fresh.certificate)
    identity_files.write_public(tmp_path / "ca.crt", fresh.ca)
    completed = load_identity(tmp_path)
    assert completed is not None
    assert (completed.key, completed.user) == (fresh.key, "bob")
    assert completed.expires_s == pytest.approx(fresh.expires_s)
    assert not (tmp_path / NEXT_KEY_FILE).exists()


def test_a_save_that_was_cut_short_earlier_leaves_the_old_identity(tmp_path: Path) -> None:
    old = an_identity()
    save_identity(tmp_path, old)
    identity_files.write_private(tmp_path / NEXT_KEY_FILE, an_identity("bob").key)
    loaded = load_identity(tmp_path)
    assert loaded is not None
    assert (loaded.key, loaded.user) == (old.key, "alice")


def test_the_home_is_named_or_in_the_config_directory() -> None:
    assert default_home({"DLQ_HOME": "/x"}) == Path("/x")
    assert default_home({"XDG_CONFIG_HOME": "/c"}) == Path("/c/dlq")
    assert default_home({"HOME": "/h"}).name == "dlq"

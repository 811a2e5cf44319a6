"""Where a box may be: local disks, short paths, its own user, and no other cluster's settings."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from dlq_cli.settings import ClientSettings
from dlq_cli.up.place import (
    Box,
    check_state,
    make_state,
    name_for,
    read_box,
    refuse_other_cluster,
    state_for,
)
from dlq_client.line.identity import CA_FILE, CERTIFICATE_FILE, CLUSTER_FILE, KEY_FILE
from dlq_common.errors import ConfigError

ROOT_MOUNT = "/dev/sda1 / ext4 rw 0 0\n"


def a_box(home: Path) -> Box:
    import platform

    return Box(
        home=home, name="up", state=home / "state", machine=platform.node(), node="n1",
        cluster="up-lab", devices="fake:2xH100-80GB", api="127.0.0.1:7320", join="127.0.0.1:7321",
    )  # fmt: skip


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    assert read_box(tmp_path) is None
    a_box(tmp_path).save()
    assert read_box(tmp_path) == a_box(tmp_path)
    assert "cores" not in json.loads((tmp_path / "up.json").read_text())  # a former keeper reads it


def test_a_record_of_another_machine_is_refused_because_homes_are_shared(tmp_path: Path) -> None:
    a_box(tmp_path).save()
    facts = json.loads((tmp_path / "up.json").read_text()) | {"machine": "elsewhere"}
    (tmp_path / "up.json").write_text(json.dumps(facts))
    with pytest.raises(ConfigError, match="is of the machine elsewhere"):
        read_box(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", '{"v": 1}', '{"v": 1, "state": "/x", "new": 1}'])
def test_a_damaged_record_is_said(tmp_path: Path, text: str) -> None:
    (tmp_path / "up.json").write_text(text)
    with pytest.raises(ConfigError, match="damaged"):
        read_box(tmp_path)


def test_each_identity_directory_has_a_box_of_its_own() -> None:
    environ = {"HOME": "/home/ada", "XDG_CONFIG_HOME": "/c", "XDG_STATE_HOME": "/s"}
    assert name_for(Path("/c/dlq"), environ) == "up"
    assert name_for(Path("/c/My lab"), environ | {"DLQ_HOME": "/c/My lab"}) == "up-my-lab"
    assert state_for("up", environ) == Path("/s/dlq/up")


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "lustre", "fuse.sshfs"])
def test_a_network_file_system_is_refused_with_a_local_place(tmp_path: Path, kind: str) -> None:
    mounts = f"{ROOT_MOUNT}server:/home {tmp_path} {kind} rw 0 0\n"
    with pytest.raises(ConfigError, match="network file system") as raised:
        check_state(tmp_path / "x", mounts)
    assert "--dir /var/tmp" in raised.value.hint


def test_the_deepest_mount_counts(tmp_path: Path) -> None:
    mounts = f"{ROOT_MOUNT}server:/ {tmp_path.parent} nfs rw 0 0\nx {tmp_path} xfs rw 0 0\n"
    check_state(tmp_path / "x", mounts)


def test_a_link_of_another_user_to_a_directory_of_ours_is_refused(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("needs root, to give a link to another user")
    (tmp_path / "ours").mkdir(mode=0o755)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "ours")
    os.chown(link, 12345, 12345, follow_symlinks=False)
    with pytest.raises(ConfigError, match="belongs to another user"):
        make_state(link, tmp_path / "home")
    assert (tmp_path / "ours").stat().st_mode & 0o777 == 0o755
    assert not [*(tmp_path / "ours").iterdir()]


def test_a_path_that_is_too_long_for_a_socket_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="too long"):
        check_state(tmp_path / ("d" * 100), ROOT_MOUNT)


def test_a_full_disk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlq_cli.up.place.FEWEST_FREE_BYTES", 1 << 60)
    with pytest.raises(ConfigError, match="free space"):
        check_state(tmp_path / "x", ROOT_MOUNT)


def test_the_directory_is_for_its_user_alone_and_for_one_box(tmp_path: Path) -> None:
    state = tmp_path / "s"
    state.mkdir(mode=0o755)
    make_state(state, tmp_path / "h1")
    assert state.stat().st_mode & 0o777 == 0o700
    make_state(state, tmp_path / "h1")
    with pytest.raises(ConfigError, match="has the box of"):
        make_state(state, tmp_path / "h2")


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_the_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    state = tmp_path / "s"
    state.mkdir()
    os.chown(state, 65534, 65534)
    with pytest.raises(ConfigError, match="another user"):
        make_state(state, tmp_path)


def logged_in(home: Path, cluster: str) -> None:
    home.mkdir(exist_ok=True)
    facts = {"address": "head:7320", "cluster": cluster, "user": "ada", "role": "user"}
    (home / CLUSTER_FILE).write_text(json.dumps(facts | {"issued_s": 1.0, "expires_s": 2.0}))
    for name in (CERTIFICATE_FILE, CA_FILE, KEY_FILE):
        (home / name).write_text("x")
    (home / KEY_FILE).chmod(0o600)


def test_the_identity_of_another_cluster_is_never_overwritten(tmp_path: Path) -> None:
    home = tmp_path / "dlq"
    logged_in(home, "lab")
    with pytest.raises(ConfigError, match="for the cluster lab at head:7320") as raised:
        refuse_other_cluster(home, ClientSettings(home, {}, {}))
    assert f"dlq --home {home}-up up" in raised.value.hint
    refuse_other_cluster(home, ClientSettings(home, {}, {}), "lab")


def test_neither_are_its_settings(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('login_socket = "/run/dlq/login.sock"\n')
    with pytest.raises(ConfigError, match="names the cluster of /run/dlq"):
        refuse_other_cluster(tmp_path, ClientSettings(tmp_path, {}, {}))

"""An agent that runs jobs as their submitters does not start on a host that lists nobody."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from dlq_common.errors import ConfigError
from dlq_nodeagent.command import main
from dlq_nodeagent.users_map import HOST_MAP, check_users_map

ROOT_ONLY = pytest.mark.skipif(os.getuid() != 0, reason="only root has files of root")
NOBODY = 65534


@pytest.fixture
def nowhere(tmp_path: Path) -> Path:
    """Where the host has no map."""
    return tmp_path / "etc" / "users.map"


def a_map(path: Path, mode: int = 0o644) -> Path:
    """A map that lists one user."""
    path.write_text("1001:1001:\n")
    path.chmod(mode)
    return path


def test_a_host_without_a_map_is_told_where_it_goes_and_how_it_looks(
    tmp_path: Path, nowhere: Path
) -> None:
    with pytest.raises(ConfigError) as refused:
        check_users_map(tmp_path, nowhere)
    text = str(refused.value)
    assert str(nowhere) in text
    assert "UID:GID:GROUP,GROUP" in text
    assert refused.value.metadata["key"] == "jobs.run_as"


@ROOT_ONLY
def test_a_map_of_the_agents_own_or_of_the_host_is_enough(tmp_path: Path, nowhere: Path) -> None:
    own = a_map(tmp_path / "users.map")
    check_users_map(tmp_path, nowhere)
    own.rename(tmp_path / "host.map")
    check_users_map(tmp_path, tmp_path / "host.map")


@ROOT_ONLY
@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
def test_a_map_that_others_may_write_is_refused(tmp_path: Path, nowhere: Path, mode: int) -> None:
    a_map(tmp_path / "users.map", mode)
    with pytest.raises(ConfigError, match="others than root may write"):
        check_users_map(tmp_path, nowhere)


@ROOT_ONLY
def test_a_map_of_somebody_else_is_refused(tmp_path: Path, nowhere: Path) -> None:
    os.chown(a_map(tmp_path / "users.map"), NOBODY, NOBODY)
    with pytest.raises(ConfigError, match="others than root may write"):
        check_users_map(tmp_path, nowhere)


@ROOT_ONLY
def test_a_link_and_a_directory_are_no_map(tmp_path: Path, nowhere: Path) -> None:
    (tmp_path / "users.map").symlink_to(a_map(tmp_path / "real.map"))
    with pytest.raises(ConfigError, match="there is neither"):
        check_users_map(tmp_path, nowhere)
    (tmp_path / "state" / "users.map").mkdir(parents=True)
    with pytest.raises(ConfigError, match="not a regular file"):
        check_users_map(tmp_path / "state", nowhere)


@ROOT_ONLY
@pytest.mark.skipif(HOST_MAP.exists(), reason="this host has a map of its own")
@pytest.mark.parametrize("options", [(), ("--check-config",)])
def test_the_command_says_so_and_starts_nothing(tmp_path: Path, options: tuple[str, ...]) -> None:
    state_dir = tmp_path / "never-made"
    words = ["run", "--devices", "none", "--state-dir", str(state_dir), *options]
    ran = CliRunner().invoke(main, words, env={"DLQ_JOBS__RUN_AS": "submitter"})
    assert ran.exit_code == 1
    assert "UID:GID:GROUP,GROUP" in ran.stderr
    assert ("[jobs]" in ran.stdout) == bool(options)
    assert not state_dir.exists()

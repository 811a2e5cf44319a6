"""The agent takes no state directory that another could have filled."""

import os
from pathlib import Path

import pytest

from dlq_common.errors import ConfigError
from dlq_nodeagent.daemon import prepare_state_dir


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives directories away")
@pytest.mark.parametrize("name", [".", "scripts", "profiler"])
def test_a_directory_that_another_user_made_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "state" / name
    path.mkdir(parents=True)
    os.chown(path, 1001, 1001)
    with pytest.raises(ConfigError, match="not the agent's alone"):
        prepare_state_dir(tmp_path / "state")
    assert path.stat().st_uid == 1001


def test_a_directory_that_everybody_may_write_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(0o777)
    with pytest.raises(ConfigError, match="not the agent's alone"):
        prepare_state_dir(tmp_path / "state")


def test_a_link_in_the_place_of_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "state/scripts").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="not the agent's alone"):
        prepare_state_dir(tmp_path / "state")
    assert (tmp_path / "elsewhere").stat().st_mode & 0o777 == 0o700


def test_its_own_directory_is_taken_again(tmp_path: Path) -> None:
    prepare_state_dir(tmp_path / "state")
    prepare_state_dir(tmp_path / "state")
    assert (tmp_path / "state/scripts").is_dir()

"""`dlq-master backup`: a copy is whole, private, and all that a new host needs."""

import shutil
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dlq_master.app import main
from dlq_master.safekeeping import Copies, copy_master
from dlq_master.serving import read_authority
from dlq_master.store.port import BackupFailed
from dlq_master.store.sqlite.backup import STAMP
from dlq_master.store.sqlite.halves import Reader

NOW_S = 1_800_000_000.0


def run(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


@pytest.fixture
def copies(tmp_path: Path) -> Copies:
    state_dir = tmp_path / "master"
    assert run("init", "--cluster", "lab", "--state-dir", str(state_dir)).exit_code == 0
    return Copies(
        state_dir=state_dir,
        config_path=state_dir / "master.toml",
        target=tmp_path / "backups",
        keep=2,
    )


def test_a_copy_is_a_master_that_can_be_started(copies: Copies) -> None:
    made = copy_master(copies, NOW_S)
    assert made.name == "dlq-20270115T080000000Z"
    assert read_authority(made, "lab").cluster == "lab"
    reader = Reader(made / "dlq.db")
    assert reader.load().meta["copy"] == "yes"
    reader.close()
    assert run("run", "--check-config", "--config", str(made / "master.toml")).exit_code == 0


def test_what_a_link_in_the_state_directory_leads_to_is_not_written(copies: Copies) -> None:
    other = copies.state_dir.parent / "other"
    other.write_text("mine")
    (copies.state_dir / STAMP).symlink_to(other)
    made = copy_master(copies, NOW_S)
    assert other.read_text() == "mine"
    assert (copies.state_dir / STAMP).read_text() == f"{made.name}\n"


def test_nobody_else_may_read_a_copy(copies: Copies) -> None:
    made = copy_master(copies, NOW_S)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (made, *made.iterdir())}
    assert set(modes) == {made.name, "dlq.db", "ca.key", "ca.crt", "master.toml"}
    assert {mode & 0o077 for mode in modes.values()} == {0}


def test_the_oldest_copies_go_and_foreign_files_stay(copies: Copies) -> None:
    made = [copy_master(copies, NOW_S + day * 86_400.0) for day in range(4)]
    (copies.target / "dlq-notes").mkdir()
    last = copy_master(copies, NOW_S + 5 * 86_400.0)
    assert sorted(copies.target.iterdir()) == sorted([made[3], last, copies.target / "dlq-notes"])


def test_a_copy_that_fails_leaves_nothing_half_made_and_the_others_alone(copies: Copies) -> None:
    before = copy_master(copies, NOW_S)
    (copies.state_dir / "dlq.db").unlink()
    with pytest.raises(BackupFailed, match=r"dlq\.db"):
        copy_master(copies, NOW_S + 60.0)
    assert list(copies.target.iterdir()) == [before]


def test_the_command_says_where_the_copy_is(copies: Copies) -> None:
    ran = run("backup", "--config", str(copies.config_path), "--to", str(copies.target))
    assert ran.exit_code == 0, ran.output
    (made,) = copies.target.iterdir()
    assert str(made) in ran.stdout


def test_the_command_fails_in_one_line_where_there_is_no_cluster(copies: Copies) -> None:
    config = copies.target.parent / "master.toml"
    shutil.copy(copies.config_path, config)
    shutil.rmtree(copies.state_dir)
    ran = run("backup", "--config", str(config), "--to", str(copies.target))
    assert ran.exit_code == 1
    assert ran.stderr.startswith("dlq-master: ")
    assert len(ran.stderr.splitlines()) == 1

"""Directories of checkpoints, level by level: what is made, what is refused."""

import os
from pathlib import Path

import pytest

from dlq_nodeagent.jobtree.places import (
    PlaceOnDisk,
    PlaceRefused,
    base_of_saved,
    check_saved,
    is_theirs,
    make_place,
)

UID = os.getuid()


@pytest.fixture
def place(tmp_path: Path) -> PlaceOnDisk:
    """Two levels below a base, made."""
    made = PlaceOnDisk(str(tmp_path), ("17-k", "1"))
    make_place(made, UID)
    return made


def step(place: PlaceOnDisk) -> Path:
    """A checkpoint in it."""
    path = Path(place.base, *place.below, "step-000001")
    path.mkdir()
    (path / "COMMITTED").write_text("{}")
    return path


def test_levels_are_private_and_made_once(place: PlaceOnDisk) -> None:
    make_place(place, UID)
    at = Path(place.base)
    for name in place.below:
        at /= name
        assert at.stat().st_mode & 0o777 == 0o700
    assert is_theirs(place, UID)


def test_a_site_may_open_them_for_reading(tmp_path: Path) -> None:
    tmp_path.chmod(0o2755)
    before = os.umask(0o077)
    try:
        make_place(PlaceOnDisk(str(tmp_path), ("1", "1")), UID, 0o750)
    finally:
        os.umask(before)
    for made in (tmp_path / "1", tmp_path / "1" / "1"):
        assert made.stat().st_mode & 0o7777 == 0o2750, "the group goes on from level to level"


def test_a_level_that_others_may_write_to_is_refused(place: PlaceOnDisk) -> None:
    os.chmod(os.path.join(place.base, place.below[0]), 0o770)
    with pytest.raises(PlaceRefused, match="chmod go-w"):
        make_place(place, UID)
    assert not is_theirs(place, UID)


def test_a_link_is_refused_even_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "17").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PlaceRefused, match="is a link"):
        make_place(PlaceOnDisk(str(tmp_path), ("17", "1")), UID)


def test_a_base_for_all_needs_the_sticky_bit(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(PlaceRefused, match="sticky"):
        make_place(PlaceOnDisk(str(tmp_path), ("17", "1")), UID)
    tmp_path.chmod(0o1777)
    make_place(PlaceOnDisk(str(tmp_path), ("17", "1")), UID)


def test_the_place_of_a_path_is_below_its_base_or_its_last_two_levels() -> None:
    assert PlaceOnDisk.of("/s/c/17/2", "/s/c", whole=False) == PlaceOnDisk("/s/c", ("17", "2"))
    assert PlaceOnDisk.of("/s/c/17/2", "", whole=False) == PlaceOnDisk("/s/c", ("17", "2"))
    assert PlaceOnDisk.of("/mine", "/mine", whole=True) == PlaceOnDisk("/mine")


def test_a_saved_step_may_be_gone_but_not_lead_out(place: PlaceOnDisk, tmp_path: Path) -> None:
    path = step(place)
    check_saved(str(path), place.base, UID)
    check_saved(str(path.parent / "step-000002"), place.base, UID)
    (path / "model").symlink_to("COMMITTED")
    check_saved(str(path), place.base, UID)
    (path / "more").symlink_to("/etc/passwd")
    with pytest.raises(PlaceRefused, match="leads out"):
        check_saved(str(path), place.base, UID)


def test_a_step_that_everybody_may_write_to_is_refused_unless_shut_in(place: PlaceOnDisk) -> None:
    path = step(place)
    path.chmod(0o777)
    check_saved(str(path), place.base, UID)  # nobody else comes to it
    for name in (place.below[0], "/".join(place.below)):
        os.chmod(os.path.join(place.base, name), 0o755)
    with pytest.raises(PlaceRefused, match="chmod o-w"):
        check_saved(str(path), place.base, UID)


def test_nothing_is_resumed_from_where_anybody_could_put_it(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    with pytest.raises(PlaceRefused, match="not on this node"):
        check_saved(str(tmp_path / "17" / "1" / "step-1"), str(tmp_path), UID)


def test_a_checkpoint_of_a_root_that_was_moved_has_a_base_of_its_own() -> None:
    assert base_of_saved("/old/17/1/step-1", "/new", levels=3) == "/old"
    assert base_of_saved("/new/17/1/step-1", "/new", levels=3) == "/new"

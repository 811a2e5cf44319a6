"""What is shipped is the database as it was committed, whatever the log and the place do."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from dlq_master.shipping.chain import NothingShipped, rebuild
from dlq_master.shipping.place import Directory, ShippingRefused, folder_of
from dlq_master.shipping.shipper import SEALED, Shipper, Superseded
from support.extent import spread
from support.shipped_site import ShippedSite, content_of


@pytest.fixture
def site(tmp_path: Path) -> ShippedSite:
    return ShippedSite(tmp_path)


def rebuilt(site: ShippedSite) -> list[str]:
    made = rebuild(site.place, site.root / "rebuilt.db")
    assert made.said == []
    return content_of(site.root / "rebuilt.db")


def test_a_snapshot_and_segments_are_the_database(site: ShippedSite) -> None:
    site.commit(20)
    shipper = site.shipper()
    for _ in range(3):
        status = shipper.cycle()
        assert (status.failure, status.behind_bytes) == ("", 0)
        assert rebuilt(site) == site.content()
        site.commit(5)
    assert shipper.status().behind_bytes > 0


def test_a_cycle_without_commits_ships_no_file(site: ShippedSite) -> None:
    shipper = site.shipper()
    first = shipper.cycle()
    site.clock.advance(5.0)
    second = shipper.cycle()
    assert second.sequence == first.sequence
    assert second.complete_s == first.complete_s + 5.0


@pytest.mark.parametrize("seed", spread(range(8), 2))
def test_logs_that_begin_anew_between_cycles_lose_nothing(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    site = ShippedSite(tmp_path)
    shipper = site.shipper()
    for _ in range(8):
        site.commit(dice.choice((1, 20, 120)), dice.choice((10, 12_000)))
        site.place.full = dice.random() < 0.3
        try:
            status = shipper.cycle()
        except OSError:
            continue
        assert status.failure == ""
        assert rebuilt(site) == site.content()
    assert not [*(site.state_dir / SEALED).glob("*.part")]


def test_a_log_that_could_not_be_copied_is_followed_by_a_snapshot(
    site: ShippedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipper = site.shipper()
    shipper.cycle()
    shutil.rmtree(site.state_dir / SEALED)  # no room for copies
    site.commit(200, 12_000)
    (site.state_dir / SEALED).mkdir()
    assert "a snapshot follows" in shipper.cycle().failure
    assert shipper.cycle().failure == ""
    assert rebuilt(site) == site.content()


def test_a_commit_that_no_copy_has_is_missed_by_its_number(site: ShippedSite) -> None:
    """The log of a whole generation is missing, and the next one looks as if it followed."""
    shipper = site.shipper()
    shipper.cycle()
    site.commit(3)
    copies = site.state_dir / SEALED
    site.writer._end_log(lambda path, frames: None)  # begins anew, uncopied
    site.commit(1)
    assert [*copies.glob("*.wal")] == []
    assert "commits are missing: a snapshot follows" in shipper.cycle().failure
    shipper.cycle()
    assert rebuilt(site) == site.content()


def test_a_place_that_was_full_gets_everything_later(site: ShippedSite) -> None:
    shipper = site.shipper()
    shipper.cycle()
    before = site.content()
    site.place.full = True
    for _ in range(3):
        site.commit(120, 12_000)
        with pytest.raises(OSError, match="No space"):
            shipper.cycle()
        assert rebuilt(site) == before
    assert shipper.status().behind_bytes > 0
    site.place.full = False
    assert shipper.cycle().failure == ""
    assert rebuilt(site) == site.content()


def test_old_chains_and_epochs_go(site: ShippedSite) -> None:
    for epoch in (1, 2, 3):
        site.shipper(epoch, f"life {epoch}").cycle()
    assert site.place.names("") == ["e000000000002", "e000000000003"]
    for life in range(4):  # the process dies, and another one goes on in this epoch
        site.commit()
        site.shipper(3, "life 3").cycle()
        assert rebuilt(site) == site.content(), life
    names = site.place.names("e000000000003")
    assert sum(name.endswith(".snapshot") for name in names) == 2


# --- whose place it is ----------------------------------------------------------------------------


def test_two_masters_do_not_ship_to_one_place(site: ShippedSite, tmp_path: Path) -> None:
    shipper = site.shipper(7)
    shipper.cycle()
    with pytest.raises(ShippingRefused, match="another master of epoch 7, on head"):
        site.shipper(7, "another").cycle()
    with pytest.raises(ShippingRefused, match="another cluster"):
        site.shipper(8, "another", "other").cycle()
    with pytest.raises(Superseded, match="epoch 7, on head"):
        site.shipper(6, "older").cycle()
    site.shipper(8, "newer").cycle()
    with pytest.raises(Superseded, match="epoch 8"):
        shipper.cycle()


def test_a_place_that_is_away_is_not_taken_for_an_empty_one(site: ShippedSite) -> None:
    shipper = site.shipper()
    shipper.cycle()
    site.there.rename(site.root / "elsewhere")
    site.commit()
    for one in (shipper, site.shipper(2)):
        with pytest.raises(FileNotFoundError):
            one.cycle()
    site.there.mkdir()  # a mount point without its file system
    with pytest.raises(FileNotFoundError):
        shipper.cycle()
    site.there.rmdir()
    (site.root / "elsewhere").rename(site.there)
    shipper.cycle()
    assert rebuilt(site) == site.content()


# --- files that are not what they were ------------------------------------------------------------


def chain(site: ShippedSite) -> list[Path]:
    """A snapshot, five segments, and the content after each."""
    shipper = site.shipper()
    shipper.cycle()
    for _ in range(4):
        site.commit(2)
        shipper.cycle()
    return sorted((site.there / "e000000000001").glob("0*"))


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


@pytest.mark.parametrize("harm", [flip, cut, Path.unlink, lambda path: path.write_bytes(b"")])
@pytest.mark.parametrize("at", spread([2, 3, 5], 1))
def test_the_chain_ends_before_a_file_that_cannot_be_believed(
    site: ShippedSite, harm: object, at: int
) -> None:
    files = chain(site)
    harm(files[at])  # type: ignore[operator]
    made = rebuild(site.place, site.root / "rebuilt.db")
    assert made.last.sequence == at
    content_of(site.root / "rebuilt.db")
    if (at, harm) != (5, Path.unlink):  # of the last one the heartbeat alone knows
        (said,) = made.said
        assert files[at].name in said
        assert "not used" in said


def test_segments_in_a_wrong_order_are_noticed(site: ShippedSite) -> None:
    files = chain(site)
    third = files[3].read_bytes()
    files[3].write_bytes(files[4].read_bytes())
    files[4].write_bytes(third)
    made = rebuild(site.place, site.root / "rebuilt.db")
    assert made.last.sequence == 3
    assert "belongs to another place of the chain" in made.said[0]


def test_a_damaged_snapshot_is_replaced_by_the_chain_before(site: ShippedSite) -> None:
    chain(site)
    before = site.content()
    site.commit()
    site.shipper(2, "next life").cycle()
    (newest,) = (site.there / "e000000000002").glob("*.snapshot")
    flip(newest)
    made = rebuild(site.place, site.root / "rebuilt.db")
    assert content_of(site.root / "rebuilt.db") == before
    assert "does not match its checksum; an older chain is taken" in made.said[0]
    shutil.rmtree(site.there / "e000000000001")
    with pytest.raises(NothingShipped, match="no whole snapshot"):
        rebuild(Directory(site.there), site.root / "rebuilt.db")


def test_small_files_that_change_are_shipped_and_others_not_again(site: ShippedSite) -> None:
    names = ("ca.crt", "ca.seeds.json")
    here = {name: site.state_dir / name for name in names}
    here["ca.crt"].write_bytes(b"first")
    files = {name: str(path) for name, path in here.items()}
    shipper = Shipper(replace(site.assignment(), files=files), site.place, site.clock)
    shipper.cycle()
    folder = site.there / folder_of(1)
    assert (folder / "ca.crt").read_bytes() == b"first"
    assert not (folder / "ca.seeds.json").exists()
    (folder / "ca.crt").write_bytes(b"put by a test")
    shipper.cycle()
    assert (folder / "ca.crt").read_bytes() == b"put by a test", "it has not changed here"
    here["ca.crt"].write_bytes(b"the next one")
    here["ca.seeds.json"].write_bytes(b"{}")
    shipper.cycle()
    assert (folder / "ca.crt").read_bytes() == b"the next one"
    assert (folder / "ca.seeds.json").read_bytes() == b"{}"

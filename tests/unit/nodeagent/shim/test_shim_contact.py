"""The contact file: one instant, written in place, that never goes back within a boot."""

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlq_nodeagent.shim.contact import ContactFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "contact"


@pytest.fixture
def contact(path: Path) -> Iterator[ContactFile]:
    made = ContactFile(path)
    yield made
    made.close()


def test_a_new_file_holds_no_contact(contact: ContactFile, path: Path) -> None:
    assert contact.boottime_s() is None
    assert path.stat().st_size == 64
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_contact_is_found_by_the_next_agent_of_the_same_boot(
    contact: ContactFile, path: Path
) -> None:
    contact.renew(1234.5)
    again = ContactFile(path)
    assert again.boottime_s() == 1234.5
    again.close()


def test_an_earlier_instant_does_not_move_the_contact_back(contact: ContactFile) -> None:
    contact.renew(20)
    contact.renew(10)
    assert contact.boottime_s() == 20


def test_a_contact_of_another_boot_is_dropped(contact: ContactFile, path: Path) -> None:
    contact.renew(1234.5)
    data = bytearray(path.read_bytes())
    data[24:28] = b"####"
    path.write_bytes(bytes(data))
    fresh = ContactFile(path)
    assert fresh.boottime_s() is None
    fresh.close()


def test_a_torn_or_cut_file_holds_no_contact(contact: ContactFile, path: Path) -> None:
    contact.renew(1234.5)
    data = path.read_bytes()
    for broken in (data[:10], data[:8] + b"\1" + data[9:], b""):
        path.write_bytes(broken)
        fresh = ContactFile(path)
        assert fresh.boottime_s() is None
        fresh.close()


def test_the_file_is_written_in_place_because_shims_keep_looking_at_it(
    contact: ContactFile, path: Path
) -> None:
    inode = path.stat().st_ino
    contact.renew(5)
    contact.renew(6)
    assert path.stat().st_ino == inode

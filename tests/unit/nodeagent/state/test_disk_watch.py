"""How the agent tells that its disk is full, and that it has room again."""

import errno
from pathlib import Path

import pytest

from dlq_nodeagent.model.messages import DiskSpace
from dlq_nodeagent.model.mistakes import LaunchRefused, NoRoom, UserMistake, lacks_room
from dlq_nodeagent.state.disk_watch import DiskWatch, Free, free_at
from support.fake_clock import FakeClock

GIB = 1 << 30


class Disk:
    def __init__(self) -> None:
        self.free = Free(10 * GIB, 1_000_000)
        self.clock = FakeClock()
        self.watch = DiskWatch(
            clock=self.clock, path=Path("/x"), spare_bytes=GIB, free=lambda path: self.free
        )

    def told(self, free_bytes: float, *, files: int = 1_000_000) -> DiskSpace | None:
        self.free = Free(int(free_bytes), files)
        return self.watch.told(False)


@pytest.fixture
def disk() -> Disk:
    return Disk()


def test_the_first_heartbeat_of_a_session_says_it_and_then_news_only(disk: Disk) -> None:
    roomy = DiskSpace(full=False, free_bytes=10 * GIB, spare_bytes=GIB)
    assert disk.watch.told(True) == roomy
    assert disk.watch.told(False) is None
    assert disk.watch.told(True) == roomy
    full = disk.told(GIB - 1)
    assert full == DiskSpace(full=True, free_bytes=GIB - 1, spare_bytes=GIB)
    assert disk.told(5) is None
    disk.clock.advance(61.0)
    again = disk.told(5)
    assert again is not None
    assert again.free_bytes == 5


def test_a_disk_that_hovers_is_one_story(disk: Disk) -> None:
    disk.told(2 * GIB)
    assert disk.told(0.9 * GIB) is not None
    for free in (1.1, 0.9, 1.2, 0.5, 1.24):
        assert disk.told(free * GIB) is None
    room = disk.told(1.25 * GIB)
    assert room is not None
    assert not room.full
    assert disk.told(1.1 * GIB) is None


def test_a_disk_without_free_files_is_full_too(disk: Disk) -> None:
    full = disk.told(10 * GIB, files=100)
    assert full is not None
    assert full.full
    room = disk.told(10 * GIB, files=-1)
    assert room is not None
    assert not room.full


def test_an_operator_may_not_mind_and_a_disk_that_cannot_be_asked_says_nothing() -> None:
    careless = DiskWatch(
        clock=FakeClock(), path=Path("/"), spare_bytes=0, free=lambda path: Free(0, 0)
    )
    told = careless.told(True)
    assert told is not None
    assert not told.full
    gone = DiskWatch(clock=FakeClock(), path=Path("/no/such/place"), spare_bytes=1, free=free_at)
    assert gone.told(True) is None


def test_a_real_disk_says_what_is_left(tmp_path: Path) -> None:
    free = free_at(tmp_path)
    assert free.size_bytes > 0
    assert free.files > 0 or free.files == -1


def test_a_full_disk_is_seen_at_the_root_of_a_failure() -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    assert lacks_room(full)
    assert lacks_room(NoRoom("no room for the image"))
    assert not lacks_room(OSError(errno.EIO, "bad"))
    assert not lacks_room(UserMistake("wrong"))
    assert not lacks_room(None)
    with pytest.raises(LaunchRefused) as refused:
        _refuse_over(full)
    assert lacks_room(refused.value)


def _refuse_over(error: OSError) -> None:
    try:
        raise error
    except OSError:
        raise LaunchRefused("the attempt could not be made") from None

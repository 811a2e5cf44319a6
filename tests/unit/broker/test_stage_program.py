"""The cache by content: deaths between any two effects, use, room, and what is never believed."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from dlq_broker import stage_program
from dlq_broker.stage_program import CacheLock, DataCache, StagingError, manifest

MOST = 10_000
DAY_S = 86_400.0


class Died(BaseException):
    """The process is gone; nothing tidies up."""


def a_source(root: Path, name: str = "one", size: int = 3_000) -> tuple[str, str, int]:
    """Where it lies, its digest and its bytes."""
    place = root / name
    (place / "deep").mkdir(parents=True)
    (place / "a").write_bytes(name.encode() * (size // len(name)))
    (place / "deep" / "run.sh").write_text("#!/bin/sh\n")
    (place / "deep" / "run.sh").chmod(0o755)
    (place / "link").symlink_to("a")
    return str(place), *manifest(str(place))


def a_cache(
    root: Path, passed: Callable[[], None] = stage_program.nothing, now_s: float = 1e9
) -> DataCache:
    return DataCache(str(root / "cache"), MOST, lambda: now_s, passed)


def entries(root: Path) -> list[str]:
    """The entries, each of them whole."""
    found = sorted(path.name for path in (root / "cache" / "entries").iterdir())
    for digest in found:
        assert manifest(str(root / "cache" / "entries" / digest / "data"))[0] == digest
    return found


def test_what_is_staged_is_what_was_declared(tmp_path: Path) -> None:
    source, digest, size = a_source(tmp_path)
    told: list[int] = []
    a_cache(tmp_path).stage(digest, size, source, "job", told.append)
    assert entries(tmp_path) == [digest]
    assert told[-1] >= size
    kept = tmp_path / "cache" / "entries" / digest / "data" / "a"
    assert kept.stat().st_mode & 0o222 == 0, "a job does not change it by mistake"


def test_a_digest_is_of_names_kinds_and_content_and_not_of_times(tmp_path: Path) -> None:
    source, digest, _ = a_source(tmp_path)
    os.utime(Path(source) / "a", (1.0, 1.0))
    assert manifest(source)[0] == digest
    for change in (
        lambda: (Path(source) / "deep" / "run.sh").chmod(0o644),
        lambda: (Path(source) / "new").mkdir(),
        lambda: (Path(source) / "a").write_text("x"),
        lambda: (Path(source) / "link").unlink(),
    ):
        before, _ = manifest(source)
        change()
        assert manifest(source)[0] != before


def test_other_content_is_never_believed(tmp_path: Path) -> None:
    source, _, size = a_source(tmp_path)
    with pytest.raises(StagingError, match="other content"):
        a_cache(tmp_path).stage("0" * 64, size, source, "job")
    assert entries(tmp_path) == []
    assert not list((tmp_path / "cache" / "partial").iterdir()), "the next try begins anew"


def test_a_death_at_any_moment_leaves_the_old_state_or_the_new_one(tmp_path: Path) -> None:
    """Two contents and room for one: each effect of a copy, a check, a drop and a rename."""
    first, second = a_source(tmp_path, "one", 6_000), a_source(tmp_path, "two", 6_000)
    seen: set[tuple[str, ...]] = set()
    for at in count(1):
        root = tmp_path / f"try{at}"
        root.mkdir()
        a_cache(root, now_s=1e9).stage(first[1], first[2], first[0], "gone")
        left = iter(range(at))

        def die() -> None:
            if next(left, None) is None:  # noqa: B023 - it is called in this round alone
                raise Died

        later = 1e9 + 8 * DAY_S  # the pin of the first has ended
        try:
            a_cache(root, die, later).stage(second[1], second[2], second[0], "job")
            died = False
        except Died:
            died = True
        seen.add(tuple(entries(root)))
        a_cache(root, now_s=later).stage(second[1], second[2], second[0], "job")
        assert entries(root) == [second[1]], f"after a death at {at}"
        assert not list((root / "cache" / "partial").iterdir())
        if not died:
            break
    assert at > 15, "it died at many places"
    assert seen == {(first[1],), (), (second[1],)}


@pytest.mark.parametrize("delay_s", [0.0, 0.005, 0.02, 0.05])
def test_sigkill_leaves_nothing_that_is_half(tmp_path: Path, delay_s: float) -> None:
    source, digest, size = a_source(tmp_path, size=30_000_000)
    words = [sys.executable, stage_program.__file__, str(tmp_path / "cache"), "1e9", "job"]
    for _ in range(2):
        with subprocess.Popen([*words, "one", digest, str(size), source]) as process:
            time.sleep(delay_s)  # where it is by then does not matter
            process.kill()
        if (tmp_path / "cache" / "entries").exists():
            assert entries(tmp_path) in ([], [digest])
    assert subprocess.call([*words, "one", digest, str(size), source]) == 0
    assert entries(tmp_path) == [digest]


def test_a_copy_goes_on_where_it_ended(tmp_path: Path) -> None:
    source, digest, size = a_source(tmp_path)
    place = tmp_path / "cache" / "partial" / digest / "data"
    cache = a_cache(tmp_path)
    place.mkdir(parents=True)
    stage_program.copy_tree(source, str(place), stage_program.nothing)
    before = (place / "a").stat().st_ino
    cache.stage(digest, size, source, "job")
    kept = tmp_path / "cache" / "entries" / digest / "data" / "a"
    assert kept.stat().st_ino == before, "it was not copied again"


def test_the_entry_that_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    made = [a_source(tmp_path, name, 3_000) for name in ("one", "two", "three", "four")]
    for age, (source, digest, size) in enumerate(made[:3]):
        a_cache(tmp_path, now_s=1e9 + age).stage(digest, size, source, "gone")
    a_cache(tmp_path, now_s=1e9 + 100).used(made[0][1])
    source, digest, size = made[3]
    a_cache(tmp_path, now_s=1e9 + 8 * DAY_S).stage(digest, size, source, "job")
    assert entries(tmp_path) == sorted([made[0][1], made[2][1], digest])
    pins = {path.name for path in (tmp_path / "cache" / "pins").iterdir()}
    ended = {f"{made[0][1]}.gone", f"{made[2][1]}.gone"}
    assert pins == {*ended, f"{digest}.job"}, "ended pins go with their entry"


def test_nothing_goes_that_a_job_uses_or_waits_for(tmp_path: Path) -> None:
    used, waited, new = (a_source(tmp_path, name, 4_500) for name in ("one", "two", "three"))
    later = 1e9 + 8 * DAY_S
    a_cache(tmp_path).stage(used[1], used[2], used[0], "gone")
    a_cache(tmp_path, now_s=later).stage(waited[1], waited[2], waited[0], "waits")
    cache = a_cache(tmp_path, now_s=later)
    with CacheLock(cache.path("locks", used[1]), fcntl.LOCK_SH):
        with pytest.raises(StagingError, match="use or wait for"):
            cache.stage(new[1], new[2], new[0], "job")
        assert entries(tmp_path) == sorted([used[1], waited[1]])
    cache.stage(new[1], new[2], new[0], "job")
    assert entries(tmp_path) == sorted([waited[1], new[1]])


def test_an_abandoned_copy_gives_its_room(tmp_path: Path) -> None:
    one, two = a_source(tmp_path, "one", 7_000), a_source(tmp_path, "two", 7_000)
    left = iter(range(12))

    def die() -> None:
        if next(left, None) is None:
            raise Died

    with pytest.raises(Died):
        a_cache(tmp_path, die).stage(one[1], one[2], one[0], "job")
    assert list((tmp_path / "cache" / "partial").iterdir())
    a_cache(tmp_path).stage(two[1], two[2], two[0], "job")
    assert entries(tmp_path) == [two[1]]


def test_what_does_not_fit_at_all_is_refused(tmp_path: Path) -> None:
    source, digest, _ = a_source(tmp_path)
    with pytest.raises(StagingError, match="more than the cache"):
        a_cache(tmp_path).stage(digest, MOST + 1, source, "job")


def test_a_cache_that_others_could_write_is_refused(tmp_path: Path) -> None:
    root, old = tmp_path / "deep" / "cache", os.umask(0o002)
    try:
        DataCache(str(root), MOST)
    finally:
        os.umask(old)
    assert root.stat().st_mode & 0o777 == 0o700
    (tmp_path / "link").symlink_to(root)
    (tmp_path / "file").write_text("")
    root.chmod(0o770)
    for place in (root, tmp_path / "link", tmp_path / "file"):
        with pytest.raises(StagingError) as refused:
            DataCache(str(place), MOST)
        assert refused.value.code == stage_program.FAILED
    assert stage_program.main([str(root), "1e9", "job", "one", "0" * 64, "1", "/"]) == 74


def test_a_cache_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(StagingError, match="not a directory of yours alone"):
        a_cache(tmp_path)


def test_directories_of_a_copy_can_be_written_so_that_they_can_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As rsync is told: it would keep the modes of the source."""
    source, digest, size = a_source(tmp_path)
    asked: list[list[str]] = []

    def rsync(words: list[str]) -> int:
        asked.append(words)
        place = words[-1]
        stage_program.copy_tree(source, place, stage_program.nothing)
        return 0

    monkeypatch.setattr(subprocess, "call", rsync)
    a_cache(tmp_path).stage(digest, size, "data1:/one", "job")
    (words,) = asked
    assert "--chmod=Du+rwx" in words
    assert words[-2] == "data1:/one/"


@pytest.mark.skipif(shutil.which("rsync") is None, reason="there is no rsync")
def test_rsync_and_the_plain_copy_make_directories_that_can_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, digest, size = a_source(tmp_path)
    deep, call = Path(source) / "deep", subprocess.call
    deep.chmod(0o555)

    def here(words: list[str]) -> int:
        """Without the host."""
        return call([*words[:-2], words[-2].removeprefix("data1:"), words[-1]])

    for name, where in (("plain", source), ("remote", f"data1:{source}")):
        monkeypatch.setattr(subprocess, "call", here)
        DataCache(str(tmp_path / name), MOST).stage(digest, size, where, "job")
        made = tmp_path / name / "entries" / digest / "data"
        assert {made.stat().st_mode & 0o700, (made / "deep").stat().st_mode & 0o700} == {0o700}
    deep.chmod(0o755)


def test_two_jobs_stage_the_same_content_once(tmp_path: Path) -> None:
    source, digest, size = a_source(tmp_path, size=2_000_000)
    words = [sys.executable, stage_program.__file__, str(tmp_path / "cache"), "1e9"]
    both = [subprocess.Popen([*words, pin, "one", digest, str(size), source]) for pin in ("p", "q")]
    assert [process.wait() for process in both] == [0, 0]
    assert entries(tmp_path) == [digest]
    pins = {path.name for path in (tmp_path / "cache" / "pins").iterdir()}
    assert pins == {f"{digest}.p", f"{digest}.q"}

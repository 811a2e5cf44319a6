"""Reading a job's own tree: what counts as a checkpoint, and what a hostile one cannot do."""

import json
import os
import threading
from pathlib import Path

import pytest

from dlq_nodeagent.jobtree.beats import Beat, parse_beat
from dlq_nodeagent.jobtree.checkpoints import CheckpointWatch, floor_of_attempt, newest_checkpoint
from dlq_nodeagent.jobtree.files import json_object, read_small
from dlq_nodeagent.jobtree.paths import (
    PathRefused,
    check_entered,
    check_real_place,
    checked_path,
    make_directory,
)
from dlq_nodeagent.jobtree.user_rights import UserRights
from dlq_nodeagent.model.messages import StepWork

ROOT_ONLY = pytest.mark.skipif(os.getuid() != 0, reason="only root may take another user's rights")
NOW_S = 2_000_000_000.0


def a_checkpoint(root: Path, step: int, *, at_s: float, marker: object | None = None) -> Path:
    """A committed checkpoint whose marker was written at that time."""
    directory = root / f"step-{step:06d}"
    directory.mkdir(parents=True)
    file = directory / "COMMITTED"
    file.write_text(json.dumps({"step": step} if marker is None else marker))
    os.utime(file, (at_s, at_s))
    return directory


def newest(root: Path, **watch: object) -> tuple[str, int | None, float] | None:
    """Path, step and age of what is found."""
    seen = newest_checkpoint(
        CheckpointWatch(directory=str(root), **watch),  # type: ignore[arg-type]
        wall_s=NOW_S,
    )
    return None if seen is None else (os.path.basename(seen.path), seen.step, seen.age_s)


def test_the_newest_marked_checkpoint_counts_whatever_its_step(tmp_path: Path) -> None:
    a_checkpoint(tmp_path, 200, at_s=NOW_S - 50)
    a_checkpoint(tmp_path, 100, at_s=NOW_S - 20)
    assert newest(tmp_path) == ("step-000100", 100, 20.0)


def test_without_a_marker_it_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "step-000300").mkdir()
    (tmp_path / "step-000400.incomplete").mkdir()
    (tmp_path / "step-000400.incomplete" / "COMMITTED").write_text("{}")
    assert newest(tmp_path) is None


def test_a_missing_directory_holds_no_checkpoint(tmp_path: Path) -> None:
    assert newest(tmp_path / "nothing") is None


def test_names_that_cannot_travel_are_passed_over(tmp_path: Path) -> None:
    for name in (b"step-\xff\xfe", b"step-000\n009", b"step-\x1b[31m"):
        directory = os.path.join(os.fsencode(tmp_path), name)
        os.mkdir(directory)
        Path(os.fsdecode(directory), "COMMITTED").write_text("{}")
    assert newest(tmp_path) is None


def test_links_and_strange_files_are_no_checkpoints(tmp_path: Path) -> None:
    real = a_checkpoint(tmp_path / "elsewhere", 1, at_s=NOW_S)
    root = tmp_path / "root"
    root.mkdir()
    (root / "step-000001").symlink_to(real)
    (root / "step-000002").mkdir()
    (root / "step-000002" / "COMMITTED").symlink_to(real / "COMMITTED")
    (root / "step-000003").mkdir()
    os.mkfifo(root / "step-000003" / "COMMITTED")
    assert newest(root) is None


@pytest.mark.parametrize("marker", ["text", [1], {"step": "x"}, {"step": -1}, {"step": 2**64}])
def test_a_marker_that_says_no_step_leaves_it_to_the_name(tmp_path: Path, marker: object) -> None:
    a_checkpoint(tmp_path, 7, at_s=NOW_S, marker=marker)
    assert newest(tmp_path) == ("step-000007", 7, 0.0)


def test_a_checkpoint_from_the_future_is_new_and_not_younger_than_now(tmp_path: Path) -> None:
    a_checkpoint(tmp_path, 1, at_s=NOW_S + 3600)
    assert newest(tmp_path) == ("step-000001", 1, 0.0)


def a_file(path: Path, *, at_s: float) -> None:
    """A file written at that time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")
    os.utime(path, (at_s, at_s))


def test_a_marker_glob_names_the_directory_it_lies_in(tmp_path: Path) -> None:
    a_file(tmp_path / "checkpoint-500" / "trainer_state.json", at_s=NOW_S - 60)
    a_file(tmp_path / "checkpoint-900" / "weights.pt", at_s=NOW_S)
    found = newest(tmp_path, marker="checkpoint-*/trainer_state.json", settle_s=10.0)
    assert found == ("checkpoint-500", 500, 60.0)


def test_a_marker_that_is_a_file_names_itself(tmp_path: Path) -> None:
    a_file(tmp_path / "hpc_ckpt_3.ckpt", at_s=NOW_S - 30)
    assert newest(tmp_path, marker="hpc_ckpt_*.ckpt") == ("hpc_ckpt_3.ckpt", 3, 30.0)


def test_two_stars_match_any_depth_also_none(tmp_path: Path) -> None:
    deep = "lightning_logs/version_0/checkpoints/epoch=1-step=20.ckpt"
    a_file(tmp_path / deep, at_s=NOW_S - 30)
    name = os.path.basename(deep)
    assert newest(tmp_path, marker="**/*.ckpt") == (name, 20, 30.0)
    a_file(tmp_path / "flat-30.ckpt", at_s=NOW_S - 20)
    assert newest(tmp_path, marker="**/*.ckpt") == ("flat-30.ckpt", 30, 20.0)
    assert newest(tmp_path, marker="lightning_logs/**/*.ckpt") == (name, 20, 30.0)
    assert newest(tmp_path, marker="**/**/version_0/**/*.ckpt") == (name, 20, 30.0)


def test_a_given_name_at_any_depth_lies_in_its_checkpoint(tmp_path: Path) -> None:
    a_file(tmp_path / "run" / "checkpoint-7" / "trainer_state.json", at_s=NOW_S - 30)
    assert newest(tmp_path, marker="**/trainer_state.json") == ("checkpoint-7", 7, 30.0)


def test_two_stars_at_the_end_match_whatever_lies_below(tmp_path: Path) -> None:
    a_file(tmp_path / "a" / "b" / "ckpt-9", at_s=NOW_S - 30)
    for directory in ("a/b", "a"):
        os.utime(tmp_path / directory, (NOW_S - 99, NOW_S - 99))
    assert newest(tmp_path, marker="**") == ("ckpt-9", 9, 30.0)


def test_two_stars_follow_no_link_and_end_at_eight_levels(tmp_path: Path) -> None:
    a_file(tmp_path / "elsewhere" / "x.ckpt", at_s=NOW_S - 30)
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to(tmp_path / "elsewhere")
    (root / "loop").symlink_to(root)
    assert newest(root, marker="**/*.ckpt") is None
    a_file(root.joinpath(*"12345678", "deep-8.ckpt"), at_s=NOW_S - 30)
    a_file(root.joinpath(*"123456789", "deep-9.ckpt"), at_s=NOW_S - 20)
    assert newest(root, marker="**/*.ckpt") == ("deep-8.ckpt", 8, 30.0)


def test_a_look_at_any_depth_ends_when_it_has_seen_enough(tmp_path: Path) -> None:
    crowd = tmp_path / "crowd"
    crowd.mkdir()
    for number in range(10_000):
        (crowd / f"{number}.txt").touch()
    a_file(crowd / "below" / "unseen.ckpt", at_s=NOW_S - 10)
    a_file(tmp_path / "near.ckpt", at_s=NOW_S - 30)
    assert newest(tmp_path, marker="**/*.ckpt") == ("near.ckpt", None, 30.0)


def test_a_marker_that_was_just_written_has_not_settled(tmp_path: Path) -> None:
    a_file(tmp_path / "a.ckpt", at_s=NOW_S - 5)
    assert newest(tmp_path, marker="*.ckpt", settle_s=10.0) is None
    assert newest(tmp_path, marker="*.ckpt", settle_s=4.0) is not None


def test_markers_from_before_the_attempt_are_not_its_own(tmp_path: Path) -> None:
    a_file(tmp_path / "old.ckpt", at_s=NOW_S - 500)  # by a clock that is ahead of the files' own
    watch = CheckpointWatch(directory=str(tmp_path), marker="*.ckpt")
    floor = floor_of_attempt(watch)
    assert newest(tmp_path, marker="*.ckpt", floor_mtime_ns=floor) is None
    a_file(tmp_path / "new.ckpt", at_s=NOW_S - 50)
    assert newest(tmp_path, marker="*.ckpt", floor_mtime_ns=floor) == ("new.ckpt", None, 50.0)


def test_a_file_from_before_the_attempt_is_not_its_own_under_a_later_name_either(
    tmp_path: Path,
) -> None:
    draft = tmp_path / "5f0c.pkl"
    draft.write_text("as submitted")
    watch = CheckpointWatch(directory=str(tmp_path), marker="**/17_submitted.pkl")
    floor = floor_of_attempt(watch)
    assert os.listdir(tmp_path) == ["5f0c.pkl"]
    stored = draft.rename(tmp_path / "17_submitted.pkl")  # submitit, once sbatch has returned
    assert newest(tmp_path, marker=watch.marker, floor_mtime_ns=floor) is None
    os.utime(stored, ns=(floor + 1, floor + 1))  # stored anew
    assert newest(tmp_path, marker=watch.marker, floor_mtime_ns=floor) is not None


def test_where_nothing_can_be_written_only_what_is_there_is_old(tmp_path: Path) -> None:
    gone = CheckpointWatch(directory=str(tmp_path / "gone"), marker="*.ckpt")
    assert floor_of_attempt(gone) == 0


@pytest.mark.parametrize("marker", ["../*.ckpt", "a/../../*", "/".join(["*"] * 20)])
def test_a_marker_glob_never_leaves_its_directory(tmp_path: Path, marker: str) -> None:
    a_file(tmp_path / "x.ckpt", at_s=NOW_S - 50)
    (tmp_path / "root" / "a").mkdir(parents=True)
    assert newest(tmp_path / "root", marker=marker) is None


@pytest.mark.parametrize(
    ("content", "beat"),
    [
        (None, None),
        (b"", None),
        (b'{"step": 5, "total": 9, "loss": 0.25}', Beat(step=5, total=9, loss=0.25)),
        (
            b'{"step_s": 0.5, "last_save_s": 3}',
            Beat(step=None, total=None, loss=None, step_s=0.5, last_save_s=3.0),
        ),
        (b'{"step_s": -1, "last_save_s": 1e9}', Beat(step=None, total=None, loss=None)),
        (
            b'{"work_steps": 3, "work_log_sum": -1.5, "work_log_square_sum": 2}',
            Beat(
                step=None,
                total=None,
                loss=None,
                work=StepWork(step_count=3, log_sum=-1.5, log_square_sum=2.0),
            ),
        ),
        (b'{"work_steps": 3, "work_log_sum": 1e999}', Beat(step=None, total=None, loss=None)),
        (b'{"step": true, "loss": "x"}', Beat(step=None, total=None, loss=None)),
        (b'{"loss": 1e999}', Beat(step=None, total=None, loss=None)),
        (b'{"loss": 1' + b"0" * 400 + b"}", Beat(step=None, total=None, loss=None)),
        (b"garbage", Beat(step=None, total=None, loss=None)),
        (b"[" * 60_000, Beat(step=None, total=None, loss=None)),
        (b"\xff\xfe", Beat(step=None, total=None, loss=None)),
    ],
)
def test_a_beat_says_only_what_makes_sense(content: bytes | None, beat: Beat | None) -> None:
    assert parse_beat(content) == beat


def test_a_small_file_is_a_plain_one_within_its_size(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 10)
    assert read_small(str(path), most_bytes=9) is None
    assert read_small(str(tmp_path), most_bytes=100) is None
    read = read_small(str(path), most_bytes=10)
    assert read == b"x" * 10


@pytest.mark.parametrize(
    "path", ["", "relative", "/a/../b", "/..", "/a/\n", "/a/\0b", "/" + "x" * 5000, "~/x"]
)
def test_a_path_that_is_not_absolute_and_plain_is_refused(path: str) -> None:
    with pytest.raises(PathRefused):
        checked_path(path, "the working directory", ())


@pytest.mark.parametrize(
    ("path", "normal"),
    [("/data//x/./y/", "/data/x/y"), ("//data/x", "/data/x"), ("/data", "/data")],
)
def test_a_path_is_made_plain(path: str, normal: str) -> None:
    assert checked_path(path, "it", ("/data",)) == normal


@pytest.mark.parametrize("path", ["/database/x", "/", "/etc", "/dat"])
def test_a_path_outside_the_allowed_directories_is_refused(path: str) -> None:
    with pytest.raises(PathRefused, match="not below"):
        checked_path(path, "the checkpoint directory", ("/data", "/home/"))


def test_a_link_that_leads_out_of_the_allowed_directories_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "out").symlink_to("/etc")
    with pytest.raises(PathRefused):
        check_real_place(str(root / "out" / "x"), "it", (str(root),))
    check_real_place(str(root / "in"), "it", (str(root),))


@ROOT_ONLY
def test_directories_are_made_by_the_user_and_belong_to_him(tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o777)
    _open_the_way(tmp_path)
    with UserRights(65534, 65534).taken():
        make_directory(str(tmp_path / "a" / "b"), "it")
    facts = (tmp_path / "a" / "b").stat()
    assert (facts.st_uid, facts.st_gid) == (65534, 65534)


@ROOT_ONLY
def test_what_the_user_may_not_read_or_make_stays_closed(tmp_path: Path) -> None:
    _open_the_way(tmp_path)
    os.chmod(tmp_path, 0o755)
    secret = tmp_path / "secret"
    secret.write_text("root's")
    secret.chmod(0o600)
    with UserRights(65534, 65534).taken():
        assert read_small(str(secret), most_bytes=100) is None
        with pytest.raises(PathRefused):
            make_directory(str(tmp_path / "mine"), "it")
    assert secret.read_text() == "root's"


@ROOT_ONLY
def test_a_directory_that_the_user_may_not_pass_is_none_to_start_in(tmp_path: Path) -> None:
    _open_the_way(tmp_path)
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    check_entered(str(closed), "it")
    with UserRights(65534, 65534).taken(), pytest.raises(PathRefused, match="Permission denied"):
        check_entered(str(closed), "it")


@ROOT_ONLY
def test_supplementary_groups_count_and_those_of_the_agent_do_not(tmp_path: Path) -> None:
    _open_the_way(tmp_path)
    for name, gid in (("theirs", 4242), ("ours", 0)):
        path = tmp_path / name
        path.write_text("x")
        os.chown(path, 0, gid)
        path.chmod(0o640)
    with UserRights(65534, 65534, (4242,)).taken():
        assert read_small(str(tmp_path / "theirs"), most_bytes=9) is not None
        assert read_small(str(tmp_path / "ours"), most_bytes=9) is None


@ROOT_ONLY
def test_rights_are_taken_by_one_thread_only_and_given_back(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("root's")
    secret.chmod(0o600)
    read: list[str] = []
    taken, groups = threading.Event(), os.getgroups()

    def read_in_another_thread() -> None:
        taken.wait(10)
        read.append(secret.read_text())

    other = threading.Thread(target=read_in_another_thread)
    other.start()
    with UserRights(65534, 65534, (4242,)).taken():
        taken.set()
        other.join()
    assert read == ["root's"]
    assert secret.read_text() == "root's"
    assert os.getgroups() == groups


@ROOT_ONLY
def test_rights_are_given_back_after_an_error(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("root's")
    secret.chmod(0o600)
    with pytest.raises(RuntimeError), UserRights(65534, 65534).taken():
        raise RuntimeError
    assert secret.read_text() == "root's"


def _open_the_way(path: Path) -> None:
    """Let other users pass through pytest's private directories."""
    for parent in (path, *path.parents):
        if parent == Path("/tmp") or len(parent.parts) <= 2:
            return
        os.chmod(parent, parent.stat().st_mode | 0o011)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32-be"])
def test_json_in_another_encoding_than_utf_8_says_nothing(encoding: str) -> None:
    assert json_object('{"step": 3}'.encode(encoding)) == {}
    assert json_object(b'{"step": 3}') == {"step": 3}

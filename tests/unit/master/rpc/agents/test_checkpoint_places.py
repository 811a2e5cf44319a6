"""The directories of attempts: unguessable below the site's root, plain where the user has named
one.
"""

import re

import pytest

from dlq.v1 import job_pb2
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.rpc.agents.checkpoint_places import CheckpointPlaces

KEY = AttemptKey(JobId(17), 2)
PLACES = CheckpointPlaces("/shared/ckpt", b"seed")


def spec(directory: str = "", marker: str = "") -> job_pb2.JobSpec:
    """A spec that says so of its checkpoints."""
    made = job_pb2.JobSpec()
    made.checkpoint.directory, made.checkpoint.marker = directory, marker
    return made


def test_the_sites_directory_cannot_be_guessed_and_stays() -> None:
    path = PLACES.directory(spec(), KEY)
    assert re.fullmatch(r"/shared/ckpt/17-[0-9a-f]{24}/2", path)
    assert PLACES.directory(spec(), KEY) == path
    other = CheckpointPlaces("/shared/ckpt", b"another").directory(spec(), KEY)
    next_job = PLACES.directory(spec(), AttemptKey(JobId(18), 2))
    assert len({path.split("-")[1], other.split("-")[1], next_job.split("-")[1]}) == 3
    assert PLACES.base(spec()) == "/shared/ckpt"


@pytest.mark.parametrize(
    ("directory", "marker", "trial", "expected"),
    [
        ("/data/mine", "", False, "/data/mine/17/2"),
        ("/data/mine/", "", False, "/data/mine/17/2"),
        ("/data/mine", "*.pt", False, "/data/mine"),
        ("/data/mine", "*.pt", True, "/data/mine/17/2"),
    ],
)
def test_a_named_directory_has_plain_names(
    directory: str, marker: str, trial: bool, expected: str
) -> None:
    asked = spec(directory, marker)
    assert PLACES.directory(asked, KEY, trial=trial) == expected
    assert PLACES.base(asked) == "/data/mine"


def test_only_what_lies_in_the_attempts_own_directory_is_promoted() -> None:
    own = PLACES.directory(spec(), KEY)
    assert PLACES.may_promote(f"{own}/step-000001", KEY)
    assert PLACES.may_promote("/shared/ckpt/17/2/step-000001", KEY), "from before an upgrade"
    assert PLACES.may_promote("/data/mine/anything", KEY), "named by the user"
    assert PLACES.may_promote("/shared/ckpt/ada/17/2/step-000001", KEY), "named below the root"
    other = PLACES.directory(spec(), AttemptKey(JobId(18), 2))
    for path in (
        f"{other}/step-000001",
        own,
        f"{own[:-1]}1/step-000001",
        f"{own}/../1/step-000001",
        f"{own}/../../{other.split('/')[3]}/2/step-000001",
        "/shared/ckpt/18/2/step-000001",
        f"/shared/ckpt/17-{'0' * 24}/2/step-000001",
        "/data/../shared/ckpt/18/2/step-1",
    ):
        assert not PLACES.may_promote(path, KEY), path

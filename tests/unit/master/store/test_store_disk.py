"""A disk that is full or broken: what was acknowledged stays, nothing false is acknowledged."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlq_master.model.ids import JobId
from dlq_master.store.batch import Batch
from dlq_master.store.port import DatabaseDamaged
from dlq_master.store.sqlite.halves import Reader, Writer
from dlq_master.store.sqlite.open import create_database
from dlq_master.store.tables.codec import BodyDamaged
from support.extent import spread
from support.stored_values import a_job

SHIM = Path(__file__).parents[3] / "support" / "failing_disk.c"

# Commits jobs of 4 KiB until one fails; prints what was acknowledged, then what failed.
_COMMIT_UNTIL_FAILURE = """
import asyncio, sys
from pathlib import Path
from support.stored_values import a_job
from dlq_master.model.ids import JobId
from dlq_master.store.batch import Batch
from dlq_master.store.sqlite.halves import Writer

async def main():
    writer = Writer(Path(sys.argv[1]))
    failures = []
    for number in range(1, 5000):
        try:
            await writer.commit(
                Batch(jobs=[a_job(number)], specs=[(JobId(number), bytes(4096))])
            )
            assert not failures, "a commit after a failure"
            print(number)
        except Exception as error:
            failures.append(type(error).__name__)
            if len(failures) == 3:
                break
    print(*failures)
    writer.close()

asyncio.run(main())
"""


def _commit_until_failure(path: Path, **env: str) -> tuple[int, list[str]]:
    done = subprocess.run(
        [sys.executable, "-c", _COMMIT_UNTIL_FAILURE, str(path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **env},
        capture_output=True,
        text=True,
        check=True,
    )
    *acknowledged, failures = done.stdout.splitlines()
    return int(acknowledged[-1]) if acknowledged else 0, failures.split()


def _stored(path: Path) -> list[int]:
    Writer(path).close()  # opens, checks, recovers
    reader = Reader(path)
    jobs = [job.job_id for job in reader.load().jobs]
    assert all(reader.spec(job_id) == bytes(4096) for job_id in jobs)
    reader.close()
    return [*jobs]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small file system")
    here = tmp_path / "small"
    here.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(here)],
        capture_output=True,
        text=True,
    )
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount: {mounted.stderr.strip()}")
    yield here
    subprocess.run(["umount", "-l", str(here)], check=True)


def test_a_full_disk_loses_nothing_and_serves_again_with_room(small_disk: Path) -> None:
    path = small_disk / "dlq.db"
    ballast = small_disk / "ballast"
    create_database(path)
    ballast.write_bytes(bytes(512 << 10))
    acknowledged, failures = _commit_until_failure(path)

    assert acknowledged > 0
    assert failures == ["CommitFailed", "Unavailable", "Unavailable"]
    ballast.unlink()
    assert _stored(path) == list(range(1, acknowledged + 1))


@pytest.fixture(scope="module")
def failing_disk(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The preload library."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    library = tmp_path_factory.mktemp("disk") / "failing_disk.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, SHIM], check=True)
    return str(library)


@pytest.mark.parametrize("after", spread([1, 2, 7], 1))
def test_a_failed_sync_is_an_error_and_the_end_of_writing(
    tmp_path: Path, failing_disk: str, after: int
) -> None:
    path = tmp_path / "dlq.db"
    create_database(path)
    acknowledged, failures = _commit_until_failure(
        path, LD_PRELOAD=failing_disk, DISK_FILE="-wal", DISK_AFTER=str(after)
    )

    assert failures == ["CommitFailed", "Unavailable", "Unavailable"]
    # The one that failed may be on disk nevertheless; it was never acknowledged.
    assert _stored(path)[:acknowledged] == list(range(1, acknowledged + 1))
    assert len(_stored(path)) <= acknowledged + 1


def test_a_spec_that_the_disk_has_changed_is_not_started_with(tmp_path: Path) -> None:
    path, spec = tmp_path / "dlq.db", b"a program and its arguments"
    create_database(path)
    writer = Writer(path)
    asyncio.run(writer.commit(Batch(jobs=[a_job(1)], specs=[(JobId(1), spec)])))
    writer.close()
    reader = Reader(path)
    assert reader.spec(JobId(1)) == spec
    reader.close()
    path.write_bytes(path.read_bytes().replace(b"program and", b"program amd"))
    with pytest.raises(DatabaseDamaged, match="row 1 of job_specs does not match its checksum"):
        Writer(path)
    reader = Reader(path)
    with pytest.raises(BodyDamaged, match="restore a backup"):
        reader.spec(JobId(1))
    reader.close()


def test_a_spec_of_an_older_master_has_no_checksum_and_is_read(tmp_path: Path) -> None:
    path = tmp_path / "dlq.db"
    create_database(path)
    writer = Writer(path)
    asyncio.run(writer.commit(Batch(jobs=[a_job(1)])))
    writer._db.execute("INSERT INTO job_specs VALUES (1, x'0a0178')")
    writer.close()
    Writer(path).close()
    reader = Reader(path)
    assert reader.spec(JobId(1)) == b"\n\x01x"
    reader.close()

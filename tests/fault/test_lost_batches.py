"""The disk takes back what was acknowledged, or changes it: the next start says what is gone, and
serves nothing wrong.
"""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from dlq_client.jobs import Jobs
from dlq_master.app import main
from support.harness import Daemons

pytestmark = pytest.mark.long(
    "unit/master/store/test_store_losses.py",
)


def test_a_torn_last_page_of_the_log_is_said_and_a_changed_page_is_not_served(
    tmp_path: Path,
) -> None:
    daemons = Daemons(tmp_path, ())
    with daemons.up():
        with daemons.connect() as line:
            accepted = [_held(daemons, Jobs(line)) for _ in range(3)]
        daemons.kill("master")
        _flip(tmp_path / "master" / "dlq.db-wal", -100)
        daemons.start("master")
        daemons.wait_for("master")
        (told,) = _said(daemons, "commits_lost")
        assert accepted[-1] in told["jobs"].split(",")
        with daemons.connect() as line:
            known = {job.job_id for job in Jobs(line).list(user="*").jobs}
            assert known == set(accepted[:-1])
            fresh = int(_held(daemons, Jobs(line)))
        assert fresh > int(accepted[-1]), "no number is given to two jobs"
        assert "commits_lost" in daemons.said("events", "--type", "commits_lost")
        daemons.stop("master")

        _run(daemons, "backup", "--to", str(tmp_path / "backups"))
        database = tmp_path / "master" / "dlq.db"
        _flip(database, database.read_bytes().index(b'"name":"ledger"') + 10)
        daemons.start("master")
        daemons.wait_for_failure("master")
        assert "does not match its checksum; restore a backup" in daemons.log("master")
        _run(daemons, "restore", str(tmp_path / "backups"), "--replace")
        daemons.start("master")
        daemons.wait_for("master")
        assert _run(daemons, "verify-audit").endswith("0 broken\n")


def _held(daemons: Daemons, jobs: Jobs) -> str:
    spec = daemons.ledger_job(0.0, 0)
    spec.hold = True
    return jobs.submit(spec).job.job_id


def _flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x01
    path.write_bytes(bytes(data))


def _said(daemons: Daemons, event: str) -> list[dict[str, str]]:
    lines = [json.loads(one) for one in daemons.log("master").splitlines() if f'"{event}"' in one]
    return [line for line in lines if line["event"] == event and line["level"] == "error"]


def _run(daemons: Daemons, *words: str) -> str:
    done = CliRunner().invoke(main, [*words, "--config", str(daemons.root / "master.toml")])
    assert done.exit_code == 0, done.output
    return done.output

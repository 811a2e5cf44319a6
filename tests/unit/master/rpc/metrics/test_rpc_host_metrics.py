"""What /metrics tells of the master's own host."""

import time
from pathlib import Path

import pytest

from dlq_common.clock import SteadyClock
from dlq_common.identity.pki import Authority
from dlq_master.control.composition.starting import NO_LOSSES, Losses
from dlq_master.rpc.audit.audit import Audit
from dlq_master.rpc.metrics.host import HostMetrics
from dlq_master.shipping.status import ShippingStatus, write_status
from dlq_master.store.commit_record import CommittedBatch
from support import metric_pages
from support.fake_clock import FakeClock
from support.faulty_file import FaultyDisk


def told(state_dir: Path, disk: FaultyDisk, losses: Losses = NO_LOSSES) -> dict[str, float]:
    audit = Audit(state_dir / "audit.jsonl", FakeClock(), open_file=disk.open)
    clock = SteadyClock()
    authority = Authority.create("lab", clock.now_s())
    found = metric_pages.told(
        HostMetrics(state_dir, clock, audit.writer, authority, losses).families()
    )
    audit.close()
    return found


def test_all_is_well(tmp_path: Path) -> None:
    (tmp_path / "dlq.backup.db").touch()
    (tmp_path / "backup.stamp").touch()
    found = told(tmp_path, FaultyDisk())
    assert found["dlq_audit_writable"] == 1
    assert found["dlq_audit_waiting_lines"] == found["dlq_audit_lost"] == 0
    assert found["dlq_commits_lost"] == found["dlq_backup_failed"] == 0
    assert found['dlq_backup_age_seconds{copy="database"}'] < 3600
    assert found['dlq_backup_age_seconds{copy="whole"}'] < 3600
    assert found["dlq_disk_free_bytes"] > 0
    assert found['dlq_certificate_left_seconds{certificate="ca"}'] > 9 * 365 * 86_400


def test_it_tells_how_far_the_shipping_is_where_there_is_one(tmp_path: Path) -> None:
    assert not any("shipping" in name for name in told(tmp_path, FaultyDisk()))
    now_s = time.time()
    write_status(tmp_path, ShippingStatus(time_s=now_s, complete_s=now_s - 90.0, behind_bytes=7))
    found = told(tmp_path, FaultyDisk())
    assert 90.0 <= found["dlq_shipping_lag_seconds"] < 200.0
    assert found["dlq_shipping_lag_bytes"] == 7
    assert found["dlq_shipping_failed"] == 0
    write_status(tmp_path, ShippingStatus(time_s=now_s, since_s=now_s, failure="full"))
    found = told(tmp_path, FaultyDisk())
    assert found["dlq_shipping_failed"] == 1
    assert found["dlq_shipping_lag_seconds"] < 100.0, "it has only begun"


@pytest.mark.parametrize("copies", [[], ["dlq.backup.db"]])
def test_what_is_not_well_is_told(tmp_path: Path, copies: list[str]) -> None:
    for name in copies:
        (tmp_path / name).touch()
    (tmp_path / "backup.failed").touch()
    disk = FaultyDisk()
    disk.broken = {"open"}
    found = told(tmp_path, disk, Losses([CommittedBatch(7), CommittedBatch(8)]))
    assert found["dlq_audit_writable"] == 0
    assert found["dlq_commits_lost"] == 2
    assert found["dlq_backup_failed"] == 1
    assert sum("backup_age" in name for name in found) == len(copies)

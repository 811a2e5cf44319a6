"""Figures of the master's host for `/metrics`: the audit, backups, the disk, the CA, and losses
found at the start.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from dlq_common.clock import Clock
from dlq_master.control.composition.starting import Losses
from dlq_master.rpc.audit.writer import AuditWriter
from dlq_master.rpc.calls.signs import Signs
from dlq_master.rpc.metrics.exposition import Labels, MetricFamily, family, gauge
from dlq_master.shipping.status import read_status
from dlq_master.store.sqlite.backup import FAILURE, STAMP

T = TypeVar("T")
# The copy that the master makes of its database, and the last one of everything by `dlq-master
# backup`.
COPIES = (("database", "dlq.backup.db"), ("whole", STAMP))


class HostMetrics:
    """Reads the times of a few files on demand. A file that cannot be read has no figure."""

    def __init__(
        self,
        state_dir: Path,
        clock: Clock,
        audit: AuditWriter,
        authority: Signs,
        losses: Losses,
    ) -> None:
        self._state_dir, self._clock = state_dir, clock
        self._audit, self._losses = audit, losses
        self._ca_end_s = authority.not_after_s

    def families(self) -> Iterator[MetricFamily]:
        """All figures."""
        yield from self._audit_families()
        words = "Acknowledged batches that this start found missing in the database."
        yield gauge("dlq_commits_lost", words, len(self._losses.batches))
        yield from self._backups()
        words = "Whether the last backup, or what the site does with it, has failed."
        yield gauge("dlq_backup_failed", words, int((self._state_dir / FAILURE).exists()))
        yield from self._shipping()
        words = "Room on the file system of the state directory."
        for free_bytes in _figures(self._free_bytes):
            yield gauge("dlq_disk_free_bytes", words, free_bytes)
        words = "Until the certificate of the CA ends."
        left_s = self._ca_end_s - self._clock.now_s()
        yield family(
            "dlq_certificate_left_seconds", "gauge", words, {(("certificate", "ca"),): left_s}
        )

    def _audit_families(self) -> Iterator[MetricFamily]:
        audit = self._audit
        words = "Whether the audit can be written; changes are refused while it cannot."
        yield gauge("dlq_audit_writable", words, int(not audit.failure))
        words = "Lines of the audit that are not on disk yet."
        yield gauge("dlq_audit_waiting_lines", words, audit.waiting)
        words = "Whether this start found the audit shorter, or other, than the database knows it."
        yield gauge("dlq_audit_lost", words, int(bool(audit.loss)))

    def _backups(self) -> Iterator[MetricFamily]:
        ages: dict[Labels, float] = {}
        for name, file in COPIES:
            for made_s in _figures((self._state_dir / file).stat):
                ages[(("copy", name),)] = max(0.0, self._clock.now_s() - made_s.st_mtime)
        words = "Age of the last copy: of the database, and of the whole master."
        yield family("dlq_backup_age_seconds", "gauge", words, ages)

    def _shipping(self) -> Iterator[MetricFamily]:
        """The figures of shipping; none if this master ships nothing."""
        status = read_status(self._state_dir)
        if status is None:
            return
        words = "Age of the last commit that is surely in the second place."
        behind_s = self._clock.now_s() - (status.complete_s or status.since_s)
        yield gauge("dlq_shipping_lag_seconds", words, max(0.0, behind_s))
        words = "Bytes of commits that are not in the second place yet."
        yield gauge("dlq_shipping_lag_bytes", words, status.behind_bytes)
        words = "Whether the last try to ship has failed."
        yield gauge("dlq_shipping_failed", words, int(bool(status.failure)))

    def _free_bytes(self) -> float:
        found = os.statvfs(self._state_dir)
        return float(found.f_bavail * found.f_frsize)


def _figures(look: Callable[[], T]) -> Iterator[T]:
    """One sample for a found value, else none."""
    try:
        yield look()
    except OSError:
        return

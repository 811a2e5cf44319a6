"""`dlq-master recover`: the old master is dead, nothing runs twice, and the losses are told."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dlq_common.errors import DlqError
from dlq_common.identity.pki import fingerprint
from dlq_master.app import main
from dlq_master.recovering import LEAP, Recovery, recover
from dlq_master.restoring import Restore
from dlq_master.rpc.audit.audit import Audit
from dlq_master.rpc.audit.chain import Head
from dlq_master.rpc.audit.writer import KnownHead
from dlq_master.serving import read_authority
from dlq_master.shipping.place import Directory
from dlq_master.shipping.shipper import SEALED, Assignment, Shipper, Superseded
from dlq_master.store.batch import AUDIT_HEAD, Batch
from dlq_master.store.sqlite.halves import Reader, Writer
from dlq_master.store.sqlite.open import read_meta
from support.fake_clock import FakeClock
from support.stored_values import a_job


class Shipped:
    """A master that has shipped three jobs and is dead; a fourth was never shipped."""

    def __init__(self, root: Path) -> None:
        self.root, self.old, self.new = root, root / "old", root / "new"
        self.there, self.config = root / "there", root / "master.toml"
        self.key = root / "ca.key"
        self.there.mkdir()
        self.clock = FakeClock()
        words = ["init", "--cluster", "lab", "--state-dir", str(self.old)]
        done = CliRunner().invoke(main, [*words, "--config", str(self.config)])
        assert done.exit_code == 0, done.output
        shutil.move(self.old / "ca.key", self.key)
        shutil.copy(self.key, self.old / "ca.key")
        self.config.write_text(self.config.read_text().replace(str(self.old), str(self.new)))
        (self.old / SEALED).mkdir()
        writer = Writer(self.old / "dlq.db")
        known = KnownHead(Head.read(read_meta(self.old / "dlq.db", AUDIT_HEAD)))
        audit = Audit(self.old / "audit.jsonl", self.clock, known=known)
        writer.tell_of(audit.writer)
        self.shipper = self.ships(epoch=5)
        for job in (1, 2, 3):
            asyncio.run(audit.recorded(None, "submit", str(job), "OK"))
            asyncio.run(writer.commit(Batch(jobs=[a_job(job)], meta={"copy": "no", "epoch": "5"})))
            self.shipper.cycle()
            self.clock.advance(2.0)
        asyncio.run(writer.commit(Batch(jobs=[a_job(4)])))
        audit.close()
        self.writer = writer

    def ships(self, epoch: int, state_dir: Path | None = None) -> Shipper:
        authority = read_authority(self.old, "lab")
        assignment = Assignment(
            state_dir=str(state_dir or self.old),
            system=fingerprint(authority.certificate_pem()),
            epoch=epoch,
            token="t",
            host="head",
            every_s=1.0,
            snapshot_every_s=60.0,
            files={"ca.crt": str(self.old / "ca.crt"), "master.toml": str(self.config)},
        )
        return Shipper(assignment, Directory(self.there), self.clock)

    def recover(
        self,
        sleep: Callable[[float], object] = lambda _s: None,
        *,
        host: str = "vault",
        **more: str,
    ) -> str:
        restore = Restore(copy=self.there, state_dir=self.new, cluster="lab", ca_key=self.key)
        wanted = replace(Recovery(place=self.there, restore=restore, host=host), **more)  # type: ignore[arg-type]
        return "\n".join(recover(wanted, self.clock.now_s(), sleep))

    def jobs(self) -> list[int]:
        reader = Reader(self.new / "dlq.db")
        found = [int(job.job_id) for job in reader.load().jobs]
        reader.close()
        return found


@pytest.fixture
def shipped(tmp_path: Path) -> Shipped:
    return Shipped(tmp_path)


def test_a_recovered_master_has_all_that_was_shipped_and_says_what_is_lost(
    shipped: Shipped,
) -> None:
    said = shipped.recover()
    assert shipped.jobs() == [1, 2, 3]
    assert "changes after 2027-01-15T08:00:04.000Z are lost" in said
    assert "last heard of at 2027-01-15T08:00:04.000Z: about 1 s of work" in said
    assert read_meta(shipped.new / "dlq.db", "copy") == "yes", "numbers leap"
    assert int(read_meta(shipped.new / "dlq.db", "epoch") or "") == 5 + LEAP
    verified = run("verify-audit", "--config", str(shipped.config))
    assert verified.exit_code == 0, verified.output
    assert [one.name for one in shipped.new.glob("recovering")] == []


def run(*words: str) -> Result:
    return CliRunner().invoke(main, [*words])


def test_the_old_master_is_fenced_from_the_first_step_on(shipped: Shipped) -> None:
    shipped.recover()
    with pytest.raises(Superseded, match=f"epoch {5 + LEAP}, on vault"):
        shipped.shipper.cycle()
    with pytest.raises(Superseded):  # and so are its next lives
        shipped.ships(6).cycle()
    # Its successor ships to the same place, if its operator wants that.
    (shipped.new / SEALED).mkdir()
    writer = Writer(shipped.new / "dlq.db")
    assert shipped.ships(5 + LEAP + 1, shipped.new).cycle().failure == ""
    writer.close()


def test_a_master_that_still_ships_is_not_replaced_unless_it_is_named(shipped: Shipped) -> None:
    def goes_on(_s: float) -> None:
        shipped.shipper.cycle()

    with pytest.raises(DlqError, match="the master on head is alive") as refused:
        shipped.recover(goes_on)
    assert "--although-alive head" in refused.value.hint
    assert not (shipped.new / "dlq.db").exists()
    assert shipped.shipper.cycle().failure == "", "nothing has been changed"
    shipped.recover(goes_on, although_alive="head")
    assert shipped.jobs() == [1, 2, 3, 4]
    with pytest.raises(Superseded):
        shipped.shipper.cycle()


def test_a_second_recovery_is_refused_unless_the_first_is_named(shipped: Shipped) -> None:
    shipped.recover()
    shutil.rmtree(shipped.new)
    with pytest.raises(DlqError, match="recovered before, on vault") as refused:
        shipped.recover(host="third")
    assert "--again vault" in refused.value.hint
    shipped.recover(host="third", again="vault")
    assert int(read_meta(shipped.new / "dlq.db", "epoch") or "") == 5 + 2 * LEAP


def test_a_master_that_stopped_in_order_has_lost_nothing(shipped: Shipped) -> None:
    shipped.shipper.cycle(is_last=True)
    waited: list[float] = []
    assert "nothing is lost" in shipped.recover(waited.append)
    assert (shipped.jobs(), waited) == ([1, 2, 3, 4], [])


def test_a_file_that_is_gone_from_the_end_is_missed(shipped: Shipped) -> None:
    max(shipped.there.rglob("*.segment")).unlink()
    said = shipped.recover()
    assert shipped.jobs() == [1, 2]
    assert "changes after 2027-01-15T08:00:02.000Z are lost" in said


def test_the_command_names_the_place_of_the_configuration_and_the_losses(
    shipped: Shipped, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = shipped.config.rename(shipped.root / "kept.toml")
    words = ["recover", "--from", str(shipped.there), "--config", str(shipped.config)]
    words += ["--ca-key", str(shipped.key), "--although-alive", "head"]
    done = run(*words)
    assert done.exit_code == 1
    assert f"cp {shipped.there}/e000000000005/master.toml" in done.output
    kept.rename(shipped.config)
    done = run(*words)
    assert done.exit_code == 0, done.output
    assert "are lost; the old master was last heard of" in done.output
    done = run("recover", "--from", str(shipped.root), "--config", str(shipped.config))
    assert (done.exit_code, "holds no shipped master" in done.output) == (1, True)


def test_a_flip_in_the_audit_that_was_shipped_is_refused_by_name(shipped: Shipped) -> None:
    (audit,) = shipped.there.rglob("audit.jsonl")
    audit.write_bytes(audit.read_bytes().replace(b'"1"', b'"2"', 1))
    with pytest.raises(DlqError, match="the audit of the copy is broken"):
        shipped.recover()
    assert not (shipped.new / "dlq.db").exists()
    assert json.loads((shipped.there / f"e{5 + LEAP:012d}/owner").read_text())["host"] == "vault"
    assert os.listdir(shipped.new) != ["dlq.db"]

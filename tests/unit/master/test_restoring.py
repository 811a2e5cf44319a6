"""`dlq-master restore`: checked before anything moves, nothing deleted, and the audit goes on."""

import asyncio
import json
import os
import shutil
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dlq_master.app import main
from dlq_master.rpc.audit.audit import Audit
from dlq_master.rpc.audit.chain import Head
from dlq_master.rpc.audit.writer import KnownHead
from dlq_master.serving import read_authority
from dlq_master.store.batch import AUDIT_HEAD, Batch
from dlq_master.store.sqlite.halves import Reader, Writer
from dlq_master.store.sqlite.open import claim, read_meta
from support.fake_clock import FakeClock
from support.stored_values import a_job


class Site:
    """A head node: a state directory, a configuration, and a directory of copies."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.state_dir, self.backups = root / "master", root / "backups"
        self.config = root / "master.toml"
        self.ran(
            "init",
            "--cluster",
            "lab",
            "--state-dir",
            str(self.state_dir),
            "--config",
            str(self.config),
        )

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(main, list(words))

    def ran(self, *words: str) -> str:
        done = self.run(*words)
        assert done.exit_code == 0, done.output
        return done.output

    def work(self, job_id: int) -> None:
        """A master that serves for a moment: one job, and its line in the audit."""
        path = self.state_dir / "dlq.db"
        writer = Writer(path)
        known = KnownHead(Head.read(read_meta(path, AUDIT_HEAD)))
        audit = Audit(self.state_dir / "audit.jsonl", FakeClock(), known=known)
        asyncio.run(writer.commit(Batch(jobs=[a_job(job_id)], meta={"copy": "no"})))
        asyncio.run(audit.recorded(None, "submit", str(job_id), "OK"))
        writer.tell_of(audit.writer)
        writer.close()
        audit.close()

    def back_up(self) -> Path:
        self.ran("backup", "--config", str(self.config), "--to", str(self.backups))
        return max(self.backups.iterdir())

    def restore(self, *more: str) -> Result:
        return self.run("restore", str(self.backups), "--config", str(self.config), *more)

    def verify(self) -> Result:
        return self.run("verify-audit", "--config", str(self.config))

    def jobs(self) -> list[int]:
        reader = Reader(self.state_dir / "dlq.db")
        found = [int(job.job_id) for job in reader.load().jobs]
        reader.close()
        return found

    def objects(self) -> list[str]:
        lines = (self.state_dir / "audit.jsonl").read_text().splitlines()
        return [json.loads(line)["object"] for line in lines]

    def set(self, section: str) -> None:
        with self.config.open("a") as file:
            file.write(f"\n{section}\n")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """Job 1 is in a copy, job 2 came after it."""
    site = Site(tmp_path)
    site.work(1)
    site.back_up()
    site.work(2)
    return site


def test_a_copy_takes_the_place_of_the_database_and_the_audit_goes_on(site: Site) -> None:
    done = site.restore("--replace")
    assert done.exit_code == 0, done.output
    assert site.jobs() == [1]
    assert read_meta(site.state_dir / "dlq.db", "copy") == "yes", (
        "the next start leaps over what was lost"
    )
    assert site.objects()[:2] == ["1", "2"], "what was done since is not forgotten"
    assert site.objects()[2].startswith(str(site.backups))
    assert site.verify().exit_code == 0
    (aside,) = site.state_dir.glob("replaced-*")
    assert (aside / "dlq.db").exists()
    assert stat.S_IMODE(aside.stat().st_mode) == 0o700
    assert (site.state_dir / "dlq.db").owner() == site.state_dir.owner()
    writer = Writer(site.state_dir / "dlq.db")
    assert writer.lost == (), "it knows itself that it is a copy"
    writer.close()


def test_a_database_that_is_there_is_not_overwritten_unless_that_is_said(site: Site) -> None:
    done = site.restore()
    assert done.exit_code == 1
    assert "holds a database already" in done.output
    assert "--replace" in done.output
    assert site.jobs() == [1, 2]


def test_under_a_master_that_runs_nothing_is_restored(site: Site) -> None:
    held = claim(site.state_dir / "dlq.db")
    done = site.restore("--replace")
    os.close(held)
    assert done.exit_code == 1
    assert "in use by another master" in done.output
    assert site.jobs() == [1, 2]


def test_a_new_host_gets_all_of_the_master_with_its_audit(site: Site) -> None:
    copied = site.backups / max(path.name for path in site.backups.iterdir())
    authority = read_authority(site.state_dir, "lab").certificate_pem()
    site.config.unlink()
    shutil.rmtree(site.state_dir)
    done = site.restore()
    assert (done.exit_code, f"cp {copied / 'master.toml'} {site.config}" in done.output) == (
        1,
        True,
    )
    shutil.copy(copied / "master.toml", site.config)
    done = site.restore()
    assert done.exit_code == 0, done.output
    assert site.jobs() == [1]
    assert read_authority(site.state_dir, "lab").certificate_pem() == authority
    assert site.objects()[0] == "1"
    assert site.verify().exit_code == 0, "the audit came along: it is not empty, and not lost"


@pytest.mark.parametrize("name", ["dlq.db", "audit.jsonl"])
def test_a_copy_that_is_damaged_is_refused_before_anything_moves(site: Site, name: str) -> None:
    (copy,) = site.backups.iterdir()
    data = bytearray((copy / name).read_bytes())
    at = data.index(b'"name"') if name == "dlq.db" else data.index(b'"submit"')
    data[at + 2] ^= 0x01
    (copy / name).write_bytes(bytes(data))
    if name == "audit.jsonl":  # where the present one is whole, the copy's is not needed
        (site.state_dir / name).unlink()
    before = sorted(path.name for path in site.state_dir.iterdir())
    done = site.restore("--replace")
    assert done.exit_code == 1, done.output
    assert "damaged" in done.output or "broken" in done.output
    assert sorted(path.name for path in site.state_dir.iterdir()) == before
    assert site.jobs() == [1, 2]


def test_a_copy_of_another_cluster_is_refused(site: Site) -> None:
    site.config.write_text(site.config.read_text().replace('"lab"', '"other"'))
    done = site.restore("--replace")
    assert done.exit_code == 1
    assert "the copy is of the cluster 'lab'" in done.output


def test_an_audit_that_was_cut_here_is_set_aside_for_the_copys(site: Site) -> None:
    (site.state_dir / "audit.jsonl").write_text("")
    assert site.verify().exit_code == 1
    assert site.restore("--replace").exit_code == 0
    assert site.objects()[0] == "1"
    assert site.verify().exit_code == 0
    (aside,) = site.state_dir.glob("replaced-*")
    assert (aside / "audit.jsonl").read_text() == ""


# --- keys, and copies that leave the host
#   -----------------------------------------------------------


def test_the_key_of_the_ca_is_encrypted_in_copies_and_opened_by_a_restore(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.work(1)
    passphrase = tmp_path / "passphrase"
    passphrase.touch(mode=0o600)
    passphrase.write_text("correct horse\n")
    site.set(f'[backup]\nca_key = "encrypted"\npassphrase_file = "{passphrase}"')
    copy = site.back_up()
    assert not (copy / "ca.key").exists()
    sealed = (copy / "ca.key.encrypted").read_bytes()
    assert b"ENCRYPTED PRIVATE KEY" in sealed
    key = (site.state_dir / "ca.key").read_bytes()
    shutil.rmtree(site.state_dir)

    done = site.restore()
    assert (done.exit_code, "--passphrase-file FILE" in done.output) == (1, True)
    wrong = tmp_path / "wrong"
    wrong.touch(mode=0o600)
    wrong.write_text("battery staple")
    assert "does not open" in site.restore("--passphrase-file", str(wrong)).output
    assert site.restore("--passphrase-file", str(passphrase)).exit_code == 0
    assert (site.state_dir / "ca.key").read_bytes() == key
    assert stat.S_IMODE((site.state_dir / "ca.key").stat().st_mode) == 0o600


def test_a_key_that_is_kept_apart_is_named_at_the_restore(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.work(1)
    site.set('[backup]\nca_key = "apart"')
    copy = site.back_up()
    assert not list(copy.glob("ca.key*"))
    apart = tmp_path / "ca.key"
    shutil.copy2(site.state_dir / "ca.key", apart)
    shutil.rmtree(site.state_dir)
    assert "--ca-key FILE" in site.restore().output
    assert site.restore("--ca-key", str(apart)).exit_code == 0
    assert read_authority(site.state_dir, "lab").cluster == "lab"


def _hook(site: Site, script: str, more: str = "") -> None:
    path = site.root / "ship"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    site.set(f'[backup]\nca_key = "apart"\nhook = ["{path}", "there"]\n{more}')


def _back_up(site: Site) -> Result:
    return site.run("backup", "--config", str(site.config), "--to", str(site.backups))


def test_copies_leave_the_host_by_the_sites_program(tmp_path: Path) -> None:
    site = Site(tmp_path)
    _hook(site, f'echo "$@" > {tmp_path}/shipped')
    copy = site.back_up()
    assert (tmp_path / "shipped").read_text() == f"there {copy}\n"
    assert not (site.state_dir / "backup.failed").exists()


@pytest.mark.parametrize(
    ("script", "more", "told"),
    [
        ("echo no route >&2; exit 3", "", "ended with 3: no route"),
        ("sleep 600 & wait", 'hook_timeout = "200ms"', "took longer than 0.2 s and was killed"),
        ("true", 'hook_user = "nobody-at-all"', "could not be started"),
    ],
)
def test_a_program_that_fails_is_an_error_and_the_copy_stays(
    tmp_path: Path, script: str, more: str, told: str
) -> None:
    site = Site(tmp_path)
    _hook(site, script, more)
    done = _back_up(site)
    assert done.exit_code == 1
    assert told in done.output
    assert told in (site.state_dir / "backup.failed").read_text()
    (copy,) = site.backups.iterdir()
    assert (copy / "dlq.db").exists()


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ('hook = ["/bin/true"]', "the CA's key must not leave in clear"),
        ('ca_key = "encrypted"', "backup.passphrase_file goes with"),
        ('ca_key = "somewhere"', "clear, encrypted or apart"),
        ('ca_key = "apart"\nhook = ["ship"]', "an absolute path"),
    ],
)
def test_settings_that_would_let_the_key_out_or_make_no_sense_are_refused(
    tmp_path: Path, section: str, told: str
) -> None:
    path = tmp_path / "master.toml"
    path.write_text(f"[backup]\n{section}\n")
    done = CliRunner().invoke(main, ["run", "--check-config", "--config", str(path)])
    assert done.exit_code == 1
    assert told in done.output

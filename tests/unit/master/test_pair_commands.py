"""The keys and settings of a second master travel encrypted, and arrive with closed doors."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dlq_common.daemon.config import load_config
from dlq_master.app import main
from dlq_master.control.config import MasterConfig
from dlq_master.pair_commands import opened, sealed, with_values
from dlq_master.rpc.people.authorities import NEXT, PAIR_KEY, SEEDS

POSTGRES = (
    '[store]\nbackend = "postgresql"\ndsn = "host=db dbname=dlq"\npassword_file = "/no/file"\n'
)
PASSPHRASE = "correct horse battery"


class Hosts:
    """The first host has a cluster. `secret`: the passphrase's file."""

    def __init__(self, root: Path) -> None:
        self.root, self.first, self.second = root, root / "one", root / "two"
        self.secret, self.exported = root / "secret", root / "pair.dlq"
        self.secret.touch(mode=0o600)
        self.secret.write_text(f"{PASSPHRASE}\n")
        done = self.run(
            "init", "--state-dir", str(self.first), "--cluster", "lab", "--advertise", "head1:7320"
        )
        assert done.exit_code == 0, done.output
        self.config = self.first / "master.toml"
        self.config.write_text(self.config.read_text() + POSTGRES)

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(main, words)

    def export(self) -> Result:
        return self.run(
            "pair", "export", "--config", str(self.config), "--passphrase-file", str(self.secret),
            "--to", str(self.exported),
        )  # fmt: skip

    def join(self) -> Result:
        return self.run(
            "pair", "join", str(self.exported), "--config", str(self.second / "master.toml"),
            "--passphrase-file", str(self.secret), "--state-dir", str(self.second),
            "--listen", "0.0.0.0:7320", "--join-listen", "0.0.0.0:7321",
            "--advertise", "head2:7320",
        )  # fmt: skip


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    return Hosts(tmp_path)


def test_a_second_master_has_the_same_ca_and_its_own_addresses(hosts: Hosts) -> None:
    (hosts.first / SEEDS).touch(mode=0o600)
    (hosts.first / SEEDS).write_text('{"pools": "aa"}')
    assert hosts.export().exit_code == 0
    assert stat.S_IMODE(hosts.exported.stat().st_mode) == 0o600
    assert b"PRIVATE KEY" not in hosts.exported.read_bytes()
    done = hosts.join()
    assert done.exit_code == 0, done.output
    assert 'masters = ["head1:7320", "head2:7320"]' in done.output
    assert "still missing on this host: /no/file" in done.output
    for name in ("ca.key", "ca.crt", SEEDS, PAIR_KEY):
        assert (hosts.second / name).read_bytes() == (hosts.first / name).read_bytes()
    for name in ("ca.key", SEEDS, PAIR_KEY):
        assert stat.S_IMODE((hosts.second / name).stat().st_mode) == 0o600
    config = load_config(MasterConfig, hosts.second / "master.toml", {})
    first = load_config(MasterConfig, hosts.config, {})
    assert config.listen.api == "0.0.0.0:7320"
    assert config.listen.advertise == "head2:7320"
    assert config.cluster.state_dir == hosts.second
    assert config.leader.masters == ("head1:7320", "head2:7320")
    assert (config.store, config.jobs) == (first.store, first.jobs)
    again = hosts.join()
    assert again.exit_code == 1
    assert "already" in again.output


@pytest.mark.parametrize("which", ["secret", "exported"])
def test_files_that_others_may_read_are_refused(hosts: Hosts, which: str) -> None:
    assert hosts.export().exit_code == 0
    path: Path = getattr(hosts, which)
    path.chmod(0o644)
    refused = hosts.join()
    assert refused.exit_code == 1
    assert "other users may use this key" in refused.output
    assert not hosts.second.exists()


def test_another_passphrase_or_a_changed_file_opens_nothing(hosts: Hosts) -> None:
    assert hosts.export().exit_code == 0
    told = hosts.exported.read_bytes()
    hosts.exported.write_bytes(told[:-9] + b"A" + told[-8:])
    assert "was changed" in hosts.join().output
    hosts.exported.write_bytes(told)
    hosts.secret.write_text("another passphrase")
    assert "the passphrase is another one" in hosts.join().output
    hosts.secret.write_text("short")
    assert "at least 12 characters" in hosts.join().output
    hosts.secret.write_text(PASSPHRASE)
    hosts.exported.write_bytes(b"something")
    assert "no file of" in hosts.join().output
    assert not hosts.second.exists()


def test_nothing_is_exported_during_a_change_of_the_ca_or_from_sqlite(hosts: Hosts) -> None:
    (hosts.first / NEXT).touch()
    assert "a change of the CA is on its way" in hosts.export().output
    (hosts.first / NEXT).unlink()
    hosts.config.write_text(hosts.config.read_text().replace(POSTGRES, ""))
    assert "needs the rows in PostgreSQL" in hosts.export().output
    assert not hosts.exported.exists()


def test_a_first_master_that_names_others_is_asked_to_name_this_one(hosts: Hosts) -> None:
    masters = '[leader]\nmasters = ["head1:7320", "head3:7320"]\n'
    hosts.config.write_text(hosts.config.read_text() + masters)
    assert hosts.export().exit_code == 0
    assert "does not name head2:7320" in hosts.join().output
    assert not (hosts.second / "master.toml").exists()


@pytest.mark.parametrize("name", ["ca.key", "ca.crt", SEEDS, NEXT, "dlq.db"])
def test_nothing_of_another_master_is_replaced(hosts: Hosts, name: str) -> None:
    assert hosts.export().exit_code == 0
    hosts.second.mkdir()
    (hosts.second / name).write_text("another's")
    refused = hosts.join()
    assert refused.exit_code == 1
    assert f"{hosts.second / name} exists" in refused.output
    assert [path.name for path in hosts.second.iterdir()] == [name]
    assert (hosts.second / name).read_text() == "another's"


def test_a_join_that_fails_leaves_nothing_and_can_be_repeated(hosts: Hosts) -> None:
    assert hosts.export().exit_code == 0
    whole = hosts.exported.read_bytes()
    content = opened(whole, PASSPHRASE.encode())
    broken = {**content, "files": {**content["files"], "ca.crt": "AAAA"}}
    hosts.exported.write_bytes(sealed(broken, PASSPHRASE.encode()))
    assert hosts.join().exit_code == 1
    assert list(hosts.second.iterdir()) == []
    hosts.exported.write_bytes(whole)
    assert hosts.join().exit_code == 0


@pytest.mark.parametrize(
    "content",
    [
        [],
        {"address": "head1:7320", "config": ""},
        {"address": "head1:7320", "config": "", "files": {"../ca.key": "AAAA"}},
        {"address": 7, "config": "", "files": {"ca.key": "AAAA", "ca.crt": "AAAA"}},
    ],
)
def test_a_file_of_another_form_is_refused_in_words(hosts: Hosts, content: Any) -> None:
    hosts.exported.touch(mode=0o600)
    hosts.exported.write_bytes(sealed(content, PASSPHRASE.encode()))
    refused = hosts.join()
    assert refused.exit_code == 1
    assert "of another release" in refused.output
    assert not hosts.second.exists()


def test_the_masters_go_into_a_section_that_is_there(hosts: Hosts) -> None:
    more = '[leader]\nformer_systems = ["71"]\n'
    hosts.config.write_text(
        hosts.config.read_text().replace("[listen]\n", '[listen]\nmetrics = "head1:9100"\n') + more
    )
    assert hosts.export().exit_code == 0
    done = hosts.join()
    assert done.exit_code == 0, done.output
    assert "metrics = head1:9100 is of the first host" in done.output
    leader = load_config(MasterConfig, hosts.second / "master.toml", {}).leader
    assert leader.masters == ("head1:7320", "head2:7320")
    assert leader.former_systems == ("71",)


def test_values_come_right_behind_the_heading_of_their_section() -> None:
    text = '[cluster]  # of ours\nname = "lab"\nstate_dir = "/a"\n\n[[queues]]\nname = "q"\n'
    told = with_values(text, {"cluster": {"state_dir": "/b"}, "listen": {"api": "h:1"}})
    assert told == (
        '[cluster]  # of ours\nstate_dir = "/b"\nname = "lab"\n\n[[queues]]\nname = "q"\n'
        '\n[listen]\napi = "h:1"\n'
    )

"""The command `dlq-master`: what init leaves behind, and what is refused before anything is
served.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner, Result

from dlq_common.daemon.config import dump_config, load_config
from dlq_common.errors import ConfigError
from dlq_master.app import main
from dlq_master.control.config import MasterConfig
from dlq_master.founding import caller_name
from dlq_master.model.lease import Terms
from dlq_master.rpc.audit.chain import Chain
from dlq_master.serving import read_authority
from dlq_master.store.sqlite.halves import Writer


def init(tmp_path: Path, *more: str) -> Result:
    return CliRunner().invoke(
        main, ["init", "--cluster", "lab", "--state-dir", str(tmp_path / "master"), *more]
    )


def checked(tmp_path: Path, section: str) -> Result:
    path = tmp_path / "master.toml"
    path.write_text(section)
    return CliRunner().invoke(main, ["run", "--check-config", "--config", str(path)])


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            'resume = "400s"',
            "lease: resume (400) must be at least 0 and shorter than be_term (300)",
        ),
        ('slo_term = "400s"', "lease: slo_term must be a whole multiple of be_term"),
        ('ttl = "400s"', "lease: heartbeat < ttl < unreachable < hold must hold"),
    ],
)
def test_leases_that_contradict_each_other_are_named_as_in_the_file(
    tmp_path: Path, words: str, told: str
) -> None:
    ran = checked(tmp_path, f"[lease]\n{words}\n")
    assert (ran.exit_code, told in ran.output) == (1, True), ran.output


@pytest.mark.parametrize(("uid", "mode"), [(0, 0o1777), (1000, 0o700)])
def test_init_makes_the_checkpoint_root_for_all_submitters_or_for_its_only_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uid: int, mode: int
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    root = tmp_path / "shared" / "checkpoints"
    ran = init(tmp_path, "--checkpoint-root", str(root))
    assert (ran.exit_code, mode_of(root)) == (0, mode), ran.output
    assert str(root) in ran.stdout


def test_init_leaves_a_checkpoint_root_that_is_there_as_it_is(tmp_path: Path) -> None:
    root = tmp_path / "shared"
    root.mkdir(mode=0o750)
    ran = init(tmp_path, "--checkpoint-root", str(root))
    assert ran.exit_code == 0
    assert mode_of(root) == 0o750
    assert ("users may make no directory in it" in ran.output) is (os.geteuid() == 0)


@pytest.mark.parametrize("words", ["[stall]\nfactor = 0.1", "[straggler]\nlimit = 0.0"])
def test_a_rule_that_cannot_be_is_told_before_the_start(tmp_path: Path, words: str) -> None:
    ran = checked(tmp_path, words)
    assert ran.exit_code == 1
    assert words[1:6] in ran.output


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("[scheduler]\ncores_per_gpu = 0", "scheduler.cores_per_gpu is above 0"),
        ("[scheduler]\ncores_per_gpu = nan", "scheduler.cores_per_gpu: nan is not a number"),
        ("[jobs]\nport_first = -5", "jobs.port_first is a port"),
        ("[jobs]\nport_last = 99999", "jobs.port_last is a port"),
        ('[jobs]\ncheckpoint_root = "checkpoints"', "jobs.checkpoint_root is an absolute path"),
        ('[jobs]\nattend_silence = "0s"', "jobs.attend_silence must be at least 1s"),
        ('[lease]\nheartbeat = "0s"', "lease: heartbeat must be more than 0"),
        ('[listen]\napi = "h:7"\njoin = "h:7"', "listen.join is the same address as listen.api"),
        ('[[gpu_types]]\nname = "H100"', "gpu_types: it is no table"),
    ],
)
def test_values_that_no_master_can_serve_by_are_told_before_the_start(
    tmp_path: Path, words: str, told: str
) -> None:
    ran = checked(tmp_path, words)
    assert (ran.exit_code, told in ran.output) == (1, True), ran.output


def test_init_writes_what_others_dial_and_where_people_log_in(tmp_path: Path) -> None:
    words = ("--advertise", "head:7320", "--login-socket", "/run/dlq/login.sock")
    assert init(tmp_path, *words).exit_code == 0
    listen = load_config(MasterConfig, tmp_path / "master/master.toml", {}).listen
    assert (listen.advertise, listen.login_socket) == ("head:7320", "/run/dlq/login.sock")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_init_gives_all_it_made_to_the_account_that_will_serve(tmp_path: Path) -> None:
    assert init(tmp_path, "--owner", "nobody").exit_code == 0
    state_dir = tmp_path / "master"
    owners = {path.name: path.owner() for path in (state_dir, *state_dir.iterdir())}
    assert owners.pop("checkpoints") == "root", "it belongs to all"
    assert set(owners.values()) == {"nobody"}
    assert mode_of(state_dir / "ca.key") == 0o600


def test_init_for_an_account_that_does_not_exist_has_made_no_cluster(tmp_path: Path) -> None:
    ran = init(tmp_path, "--owner", "dlq-nobody")
    assert ran.exit_code == 1
    assert "there is no account 'dlq-nobody' on this host" in ran.stderr
    assert not (tmp_path / "master/ca.key").exists()


def test_init_of_a_uid_without_an_account_is_refused_in_words_and_makes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 54_321)
    ran = init(tmp_path)
    assert ran.exit_code == 1
    assert "uid 54321 has no account on this host" in ran.output
    assert list(tmp_path.iterdir()) == []
    assert caller_name() == "uid 54321"


def test_init_that_cannot_make_the_checkpoint_root_has_made_no_cluster(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert init(tmp_path, "--checkpoint-root", str(tmp_path / "file/below")).exit_code == 1
    assert init(tmp_path).exit_code == 0, "it can be run again"


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o660])
def test_a_ca_key_that_others_may_use_is_refused_with_the_remedy(tmp_path: Path, mode: int) -> None:
    assert init(tmp_path).exit_code == 0
    key = tmp_path / "master/ca.key"
    assert mode_of(key) == 0o600
    key.chmod(mode)
    with pytest.raises(ConfigError, match="other users may use this key") as caught:
        read_authority(tmp_path / "master", "lab")
    assert f"chmod 600 {key}" in caught.value.hint


@pytest.mark.parametrize("key", ["api", "join", "advertise"])
@pytest.mark.parametrize("address", ["head", "head:99999", ":7320", "head:x"])
def test_an_address_that_is_none_is_named_by_its_key(
    tmp_path: Path, key: str, address: str
) -> None:
    ran = checked(tmp_path, f'[listen]\n{key} = "{address}"\n')
    assert ran.exit_code == 1
    assert ran.stderr.startswith(f"dlq-master: listen.{key}: {address!r} is not HOST:PORT")


def test_addresses_of_all_kinds_are_accepted(tmp_path: Path) -> None:
    ran = checked(tmp_path, '[listen]\napi = "[::]:7320"\njoin = "0.0.0.0:0"\n')
    assert ran.exit_code == 0, ran.stderr


def test_saves_that_may_never_begin_are_refused_before_the_first_lapse(tmp_path: Path) -> None:
    ran = checked(tmp_path, "[jobs]\nconcurrent_saves = 0\n")
    assert ran.exit_code == 1
    assert "jobs.concurrent_saves" in ran.stderr


def test_when_requeues_freeze_is_configuration_and_reaches_the_core(tmp_path: Path) -> None:
    path = tmp_path / "master.toml"
    path.write_text(
        '[lease]\nfreeze_fraction = 0.5\nfreeze_nodes = 10\nfreeze_window = "2m"\n'
        'freeze_longest = "3h"\nloop_lag_limit = "9s"\n'
    )
    terms = load_config(MasterConfig, path, {}).lease.terms()
    assert (terms.freeze_fraction, terms.freeze_nodes) == (0.5, 10)
    assert (terms.freeze_window_s, terms.loop_lag_limit_s) == (120.0, 9.0)
    assert terms.freeze_longest_s == 10_800.0
    assert MasterConfig().lease.terms() == Terms(), "the defaults are the core's own"


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("freeze_fraction = 1.5", "freeze_fraction"),
        ("freeze_nodes = 0", "freeze_nodes"),
        ('freeze_window = "0s"', "freeze_window"),
        ('freeze_longest = "0s"', "freeze_longest"),
        ('loop_lag_limit = "0s"', "loop_lag_limit"),
    ],
)
def test_a_freeze_that_makes_no_sense_is_refused_by_its_key(
    tmp_path: Path, line: str, word: str
) -> None:
    ran = checked(tmp_path, f"[lease]\n{line}\n")
    assert ran.exit_code == 1
    assert word in ran.stderr


@pytest.mark.parametrize(
    ("section", "line"),
    [
        ("jobs", "queued_per_user = 0"),
        ("jobs", "submit_burst = 0"),
        ("jobs", "submit_rate = 0.0"),
        ("jobs", "submit_rate = inf"),
        ("retention", "journal_most = 0"),
        ("retention", "ended_most = -1"),
        ("retention", 'compact_every = "1ms"'),
        ("profiler", 'mode = "sometimes"'),
        ("profiler", 'window = "2h"'),
        ("profiler", "link_gbits = -1.0"),
    ],
)
def test_a_limit_that_lets_nothing_pass_is_refused_by_its_key(
    tmp_path: Path, section: str, line: str
) -> None:
    ran = checked(tmp_path, f"[{section}]\n{line}\n")
    assert ran.exit_code == 1
    assert f"{section}.{line.split()[0]}" in ran.stderr


def test_the_audit_is_verified_by_a_command(tmp_path: Path) -> None:
    assert init(tmp_path).exit_code == 0
    path = tmp_path / "master/audit.jsonl"
    chain = Chain(path, 300)
    for number in range(12):
        chain.append({"object": str(number)})
    chain.close()
    verify = ["verify-audit", "--config", str(tmp_path / "master/master.toml")]
    ran = CliRunner().invoke(main, verify)
    assert (ran.exit_code, ran.stdout) == (0, "16 lines; 0 broken\n")

    file = path.with_name("audit.000002.jsonl")
    file.write_text(file.read_text().replace('"object":"', '"object":"x', 1))
    ran = CliRunner().invoke(main, verify)
    assert ran.exit_code == 1
    assert ran.stderr == "audit.000002.jsonl:3: does not follow from the line before it\n"
    path.with_name("audit.000001.jsonl").unlink()
    assert "lines, after 4 that are elsewhere" in CliRunner().invoke(main, verify).stdout
    for left in path.parent.glob("audit*"):
        left.unlink()
    assert "audit.jsonl" in CliRunner().invoke(main, verify).stderr


def test_an_audit_that_is_gone_is_an_error_and_not_an_empty_one(tmp_path: Path) -> None:
    assert init(tmp_path).exit_code == 0
    path = tmp_path / "master/audit.jsonl"
    chain = Chain(path)
    for number in range(3):
        chain.append({"object": str(number)})
    chain.sync()
    chain.close()
    writer = Writer(tmp_path / "master/dlq.db")
    writer.tell_of(_Written(chain.head.text()))
    writer.close()

    verify = ["verify-audit", "--config", str(tmp_path / "master/master.toml")]
    assert CliRunner().invoke(main, verify).stdout == "3 lines; 0 broken\n"
    path.unlink()
    ran = CliRunner().invoke(main, verify)
    assert ran.exit_code == 1
    assert "the database knows 3: 3 lines are lost" in ran.stderr


class _Written(NamedTuple):
    """An audit that has written up to this line."""

    head: str

    def written(self) -> tuple[str, tuple[str, ...]]:
        return self.head, ()

    def forgotten(self, note_ids: tuple[str, ...]) -> None:
        pass


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("[gpu_types.t4]\nspeed = 0", "gpu_types.t4.speed: 0 is not between 0.001 and 1000"),
        ("[gpu_types.t4]\nspeed = nan", "gpu_types[t4].speed: nan is not a number"),
        ('[gpu_types.t4]\nspeed = "slow"', "gpu_types"),
        ("[gpu_types.t4]\nsped = 1.0", "unknown key"),
        ("[gpu_types.t4]", "missing"),
        ('[gpu_types."T 4"]\nspeed = 0.3', "gpu_types.T 4: 'T 4' is no name of a GPU type"),
        ("[gpu_types.cpu]\nspeed = 0.3", "gpu_types.cpu: 'cpu' is no name of a GPU type"),
    ],
)
def test_a_speed_that_no_gpu_type_can_have_is_named_as_in_the_file(
    tmp_path: Path, words: str, told: str
) -> None:
    ran = checked(tmp_path, f"{words}\n")
    assert (ran.exit_code, told in ran.output) == (1, True), ran.output


def test_declared_speeds_are_read_and_shown_as_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "master.toml"
    path.write_text('[gpu_types.t4]\nspeed = 0.3\n[gpu_types."a100-40gb"]\nspeed = 1\n')
    config = load_config(MasterConfig, path, {})
    assert config.type_speeds().declared == {"t4": 0.3, "a100-40gb": 1.0}
    path.write_text(dump_config(config))
    assert load_config(MasterConfig, path, {}) == config


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ('web_certificates = "30d"', "identity.web_certificates is 0s, or from 1m to 15d"),
        ('web_certificates = "1s"', "identity.web_certificates is 0s, or from 1m to 15d"),
        ('group_roles = {ops = "operator"}', "web_may_act_for does not name the role operator"),
        ('group_roles = {ops = "emperor"}', "web_may_act_for does not name the role emperor"),
        ('group_teams = {lab = "a team"}', "identity.group_teams.lab"),
        ('group_teams = {"" = "vision"}', "no name of a group"),
    ],
)
def test_rights_of_a_web_server_that_make_no_sense_are_refused(
    tmp_path: Path, words: str, told: str
) -> None:
    ran = checked(tmp_path, f"[identity]\n{words}\n")
    assert (ran.exit_code, told in ran.output) == (1, True), ran.output


def test_groups_that_give_roles_and_teams_are_read(tmp_path: Path) -> None:
    ran = checked(
        tmp_path,
        '[identity]\nweb_may_act_for = ["user", "operator"]\nweb_certificates = "12h"\n'
        '[identity.group_roles]\n"/lab/ops" = "operator"\n[identity.group_teams]\nvis = "vision"\n',
    )
    assert ran.exit_code == 0, ran.output
    again = checked(tmp_path, ran.output)
    assert (again.exit_code, again.output) == (0, ran.output), "as it is printed"


def test_limits_of_restarts_are_of_known_causes(tmp_path: Path) -> None:
    ran = checked(tmp_path, "[jobs.restart_limits]\nnode = 5\n")
    assert ran.exit_code == 0, ran.output
    again = checked(tmp_path, ran.output)
    assert (again.exit_code, again.output) == (0, ran.output), "as it is printed"
    ran = checked(tmp_path, "[jobs.restart_limits]\nerror = 5\n")
    assert (ran.exit_code, "jobs.restart_limits.error" in ran.output) == (1, True), ran.output

"""Programs of providers run in an account that owns no key, or the master says why it cannot."""

from __future__ import annotations

import os
import pwd
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from dlq_common.errors import ConfigError
from dlq_master import serving
from dlq_master.control.config import MasterConfig
from dlq_master.control.pool_config import PoolConfig, RentingConfig
from dlq_master.providers import accounts, calls
from dlq_master.providers.accounts import with_accounts
from dlq_master.providers.calls import call
from dlq_master.providers.port import ProviderFailed
from support.provider_helper import HOST_PYTHON
from support.waiting import wait_until

pytestmark = pytest.mark.integration
HERE_ALONE = "127.0.0.1:7320"
ME = pwd.getpwuid(os.getuid()).pw_name
needs_root = pytest.mark.skipif(
    os.getuid() != 0 or HOST_PYTHON is None, reason="only root can become somebody else"
)


def pool(**more: Any) -> PoolConfig:
    told = {"program": "/bin/true"} | more
    return PoolConfig("spot", "exec", "H100", 8, 10.0, **told)


def refused(one: PoolConfig, **renting: Any) -> ConfigError:
    with pytest.raises(ConfigError) as told:
        with_accounts((one,), RentingConfig(**renting), listens=HERE_ALONE)
    return told.value


@pytest.fixture
def not_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a master in its own account sees itself; what it may do stays."""
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000_123)


@pytest.fixture
def helper() -> Iterator[Path]:
    """Of the account nobody, or of ours where we cannot become it."""
    path = Path(f"/tmp/dlq-provider-{os.getpid()}.sock")
    words = [sys.executable, "-m", "support.provider_helper", str(path), "nobody"]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(words, env=env) as served:
        try:
            wait_until(path.exists, what="the helper listens", timeout_s=60)
            wait_until(lambda: answers(path), what="it answers", timeout_s=60)
            yield path
        finally:
            served.kill()
            path.unlink(missing_ok=True)


def answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as line:
        return line.connect_ex(str(path)) == 0


def asked(path: Path, *words: str, text: str = "", timeout_s: float = 60.0) -> str:
    told = {"words": list(words), "text": text, "timeout_s": timeout_s}
    return calls._by_helper(str(path), told)


@needs_root
def test_the_helper_runs_a_program_in_its_own_account(helper: Path) -> None:
    assert asked(helper, "/bin/sh", "-c", "id -un; cat", text="a word\n") == "nobody\na word\n"


@needs_root
def test_what_the_program_says_when_it_fails_is_told(helper: Path) -> None:
    with pytest.raises(ProviderFailed, match="sh ended with 3: no such machine"):
        asked(helper, "/bin/sh", "-c", "echo no such machine >&2; exit 3")
    with pytest.raises(ProviderFailed, match="sleep did not end within"):
        asked(helper, "/bin/sleep", "600", timeout_s=0.5)


@needs_root
def test_it_ends_with_the_master_that_asked(helper: Path, tmp_path: Path) -> None:
    mark = Path(f"/tmp/dlq-provider-{os.getpid()}.mark")
    script = f"echo $$ >{mark}; exec sleep 600"
    told = f'{{"words": ["/bin/sh", "-c", "{script}"], "text": "", "timeout_s": 600}}\n'
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(helper))
            line.sendall(told.encode())
            wait_until(lambda: mark.exists() and mark.read_text(), what="it runs", timeout_s=60)
        pid = int(mark.read_text())
        gone = Path(f"/proc/{pid}/stat")
        wait_until(lambda: not gone.exists() or ") Z" in gone.read_text(), what="it is killed")
    finally:
        mark.unlink(missing_ok=True)


@pytest.mark.skipif(os.getuid() == 0, reason="here the helper is another account")
def test_a_helper_in_the_masters_account_is_refused(helper: Path) -> None:
    with pytest.raises(ProviderFailed, match="in the account of the master"):
        asked(helper, "/bin/true")


def test_nobody_there_is_said() -> None:
    with pytest.raises(ProviderFailed, match="nobody runs programs at /nowhere: No such file"):
        asked(Path("/nowhere"), "/bin/true")


def test_the_account_of_the_master_is_refused_in_words() -> None:
    told = refused(pool(user=ME))
    whose = "root" if os.getuid() == 0 else "the master, which owns the CA's key"
    assert f"would run in the account of {whose}" in told.what
    assert "pools[0].user" in told.what
    assert "allow_master_account" in told.hint


def test_no_account_is_refused_where_the_packaged_one_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(accounts, "DEFAULT", "dlq-not-there")
    assert "pools[0].user" in refused(pool()).what
    assert "there is no account dlq-not-there" in refused(pool(user="dlq-not-there")).what


@needs_root
def test_root_is_no_account_for_a_program(not_root: None) -> None:
    assert "would run in the account of root" in refused(pool(user="root")).what


@pytest.mark.usefixtures("not_root")
def test_without_a_helper_a_master_that_is_not_root_refuses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = refused(pool(user="nobody", helper="/nowhere"))
    assert "cannot have programs run as nobody: nobody runs programs at /nowhere" in told.what
    assert "dlq-provider.socket" in told.hint


@needs_root
@pytest.mark.usefixtures("not_root")
def test_a_helper_of_another_account_is_refused(
    helper: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = pool(user="nobody", helper=str(helper))
    assert with_accounts((one,), RentingConfig(), listens=HERE_ALONE) == (one,)
    told = refused(replace(one, user="daemon"))
    assert f"run as uid {pwd.getpwnam('nobody').pw_uid}, and not as daemon" in told.what


def exception(listens: str = HERE_ALONE) -> tuple[PoolConfig, ...]:
    return with_accounts((pool(),), RentingConfig(allow_master_account=True), listens=listens)


def test_a_machine_of_one_user_may_say_that_it_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with capture_logs() as said:
        assert exception() == (pool(),)
    (told,) = said
    assert (told["event"], told["log_level"]) == ("programs_can_read_the_keys", "warning")
    with capture_logs() as said:
        renting = RentingConfig(allow_master_account=True)
        assert with_accounts((), renting, listens="0.0.0.0:7320") == ()
    assert said == [], "a master without programs has nothing to say"


def test_a_machine_that_other_hosts_reach_has_more_users_than_one() -> None:
    with pytest.raises(ConfigError, match=r"other hosts reach this master at 0.0.0.0:7320"):
        exception("0.0.0.0:7320")


def test_static_pools_run_nothing() -> None:
    one = PoolConfig("desk", "static", "H100", 8, 10.0, hosts=("a",))
    assert with_accounts((one,), RentingConfig(), listens=HERE_ALONE) == (one,)


@needs_root
def test_the_home_of_the_account_is_told_and_not_the_masters() -> None:
    told = call(["/bin/sh", "-c", "echo $HOME $USER"], timeout_s=20.0, user="nobody")
    assert told.split() == [pwd.getpwnam("nobody").pw_dir, "nobody"]


def test_a_master_that_starts_asks_for_the_accounts() -> None:
    config = MasterConfig(pools=(pool(user=ME),))
    nothing: Any = None
    with pytest.raises(ConfigError, match="would run in the account"):
        serving._make_desk(config, nothing, nothing, nothing, nothing, nothing, nothing)

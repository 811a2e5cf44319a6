"""The private PostgreSQL servers of tests do what tests ask of them."""

from collections.abc import Iterator
from typing import NoReturn

import psycopg
import pytest

from support.postgres_site import PASSWORD, PostgresSite, account, need_postgres, postgres_site
from support.waiting import wait_until

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def site() -> Iterator[PostgresSite]:
    with postgres_site() as found:
        found.primary.ask("CREATE TABLE kept (number int)")
        yield found


def test_it_keeps_what_was_committed_when_all_its_processes_are_killed(site: PostgresSite) -> None:
    site.primary.ask("INSERT INTO kept VALUES (1)")
    site.primary.kill()
    with pytest.raises(psycopg.OperationalError):
        site.primary.connect()
    site.primary.start()
    assert site.primary.ask("SELECT number FROM kept") == [(1,)]


def test_it_asks_for_the_password_on_its_port_only(site: PostgresSite) -> None:
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(site.primary.tcp_dsn)
    psycopg.connect(site.primary.tcp_dsn, password=PASSWORD).close()


def test_a_standby_holds_each_commit_and_can_be_promoted() -> None:
    with postgres_site() as site:
        standby = site.add_standby()
        site.primary.ask("CREATE TABLE kept (number int)")
        site.primary.pause()
        site.primary.resume()
        site.primary.ask("INSERT INTO kept VALUES (2)")
        site.primary.kill()
        standby.promote()
        wait_until(lambda: standby.ask("SELECT number FROM kept") == [(2,)], what="it is there")
        standby.ask("INSERT INTO kept VALUES (3)")


def test_without_postgresql_a_test_is_skipped_or_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("support.postgres_site.programs", lambda: None)
    monkeypatch.delenv("DLQ_NEED_POSTGRES", raising=False)
    with pytest.raises(pytest.skip.Exception, match="is not installed"):
        need_postgres()
    monkeypatch.setenv("DLQ_NEED_POSTGRES", "1")
    with pytest.raises(pytest.fail.Exception, match="DLQ_NEED_POSTGRES"):
        need_postgres()


def test_so_does_root_without_an_account_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(name: str) -> NoReturn:
        raise KeyError(name)

    monkeypatch.setattr("support.postgres_site.os.getuid", lambda: 0)
    monkeypatch.setattr("support.postgres_site.pwd.getpwnam", nobody)
    monkeypatch.delenv("DLQ_NEED_POSTGRES", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no account for it"):
        account()
    monkeypatch.setenv("DLQ_NEED_POSTGRES", "1")
    with pytest.raises(pytest.fail.Exception, match="DLQ_NEED_POSTGRES"):
        account()

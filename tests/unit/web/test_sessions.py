"""WebSessions: a link opens one, time ends it, and only its own token makes changes."""

from __future__ import annotations

from dlq_web.door.sessions import (
    IDLE_S,
    LINK_S,
    LONGEST_S,
    MOST_SESSIONS,
    WebSessions,
    is_token,
)
from support.fake_clock import FakeClock


def test_a_link_opens_one_session() -> None:
    sessions = WebSessions(FakeClock())
    link = sessions.new_link()
    secret = sessions.enter(link)
    assert secret is not None
    assert sessions.of(secret) is not None
    assert sessions.enter(link) is None


def test_an_old_link_and_a_made_up_one_open_none() -> None:
    clock = FakeClock()
    sessions = WebSessions(clock)
    link = sessions.new_link()
    clock.advance(LINK_S)
    assert sessions.enter(link) is None
    assert sessions.enter("made-up") is None
    assert sessions.enter("") is None


def test_a_session_ends_when_it_is_not_used() -> None:
    clock = FakeClock()
    sessions = WebSessions(clock)
    secret = sessions.begin(by_cookie=True)
    clock.advance(IDLE_S - 1)
    assert sessions.of(secret) is not None
    clock.advance(IDLE_S)
    assert sessions.of(secret) is None


def test_a_session_ends_however_much_it_is_used() -> None:
    clock = FakeClock()
    sessions = WebSessions(clock)
    secret = sessions.begin(by_cookie=True)
    for _ in range(int(LONGEST_S / (IDLE_S / 2)) - 1):
        clock.advance(IDLE_S / 2)
        assert sessions.of(secret) is not None
    clock.advance(IDLE_S / 2)
    assert sessions.of(secret) is None


def test_a_program_s_token_lasts_as_long_as_the_server() -> None:
    clock = FakeClock()
    sessions = WebSessions(clock)
    secret = sessions.begin(by_cookie=False)
    clock.advance(30 * LONGEST_S)
    assert sessions.of(secret) is not None


def test_who_leaves_is_gone() -> None:
    sessions = WebSessions(FakeClock())
    secret = sessions.begin(by_cookie=True)
    session = sessions.of(secret)
    sessions.leave(secret)
    assert sessions.of(secret) is None
    assert session is not None
    assert session.over.is_set()  # its open streams end


def test_the_longest_unused_session_makes_way_and_never_a_program_s() -> None:
    clock = FakeClock()
    sessions = WebSessions(clock)
    program, first = sessions.begin(by_cookie=False), sessions.begin(by_cookie=True)
    last = first
    for _ in range(MOST_SESSIONS):
        clock.advance(1.0)
        last = sessions.begin(by_cookie=True)
    assert sessions.of(first) is None
    assert sessions.of(last) is not None
    assert sessions.of(program) is not None


def test_each_session_has_a_token_of_its_own() -> None:
    sessions = WebSessions(FakeClock())
    one, two = (sessions.of(sessions.begin(by_cookie=True)) for _ in range(2))
    assert one is not None
    assert two is not None
    assert is_token(one, one.csrf)
    assert not is_token(one, two.csrf)
    assert not is_token(one, "")

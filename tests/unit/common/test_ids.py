"""Identifiers: the real and the seeded source keep one contract."""

import re
import uuid

import pytest

from dlq_common.ids import Ids, RandomIds, positive_decimal, time_ordered_uuid
from support.fake_clock import FakeClock, SeededIds


@pytest.fixture(params=["random", "seeded"])
def ids(request: pytest.FixtureRequest) -> Ids:
    return RandomIds(FakeClock()) if request.param == "random" else SeededIds(7)


def test_a_thousand_request_ids_differ_and_are_version_7_uuids(ids: Ids) -> None:
    made = {ids.request_id() for _ in range(1000)}
    assert len(made) == 1000
    assert {(uuid.UUID(text).version, uuid.UUID(text).variant) for text in made} == {
        (7, uuid.RFC_4122)
    }


def test_a_session_id_is_the_text_of_a_positive_63_bit_integer(ids: Ids) -> None:
    assert all(0 < int(ids.session_id()) < 2**63 for _ in range(100))
    assert positive_decimal(b"\0" * 8) == "1"
    assert positive_decimal(b"\xff" * 8) == str(2**63 - 1)


def test_a_secret_holds_256_bits_in_characters_safe_anywhere(ids: Ids) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", ids.secret())
    assert ids.secret() != ids.secret()


def test_two_generators_for_jitter_are_not_in_step(ids: Ids) -> None:
    assert ids.rng().random() != ids.rng().random()


def test_later_request_ids_sort_after_earlier_ones() -> None:
    clock = FakeClock()
    ids = RandomIds(clock)
    made = []
    for _ in range(50):
        made.append(ids.request_id())
        clock.advance(0.002)
    assert made == sorted(made)


def test_the_time_of_a_request_id_can_be_read_back() -> None:
    text = time_ordered_uuid(1_800_000_000.123, b"\xff" * 10)
    assert uuid.UUID(text).int >> 80 == 1_800_000_000_123


def test_a_seed_decides_every_id() -> None:
    def story(seed: int) -> list[str]:
        ids = SeededIds(seed)
        return [ids.request_id(), ids.session_id(), ids.secret(), str(ids.rng().random())]

    assert story(1) == story(1)
    assert not set(story(1)) & set(story(2))

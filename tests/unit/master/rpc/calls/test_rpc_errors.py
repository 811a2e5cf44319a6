"""Errors as statuses: each kind has its code, its reason travels, and nothing else leaks."""

from __future__ import annotations

from typing import Any

import pytest
from google.rpc import error_details_pb2

from dlq_common import errors
from dlq_common.errors import DlqError
from dlq_master.rpc.calls.errors import CODES, HiddenFromCaller, status_of

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, DlqError) and kind is not DlqError
]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_error_has_a_code_and_carries_its_reason(kind: type[DlqError]) -> None:
    status = status_of(kind("what happened", colour="blue"))
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert (info.reason, info.domain) == (kind.reason, "dlq")
    assert info.metadata["colour"] == "blue"
    if not issubclass(kind, errors.ConfigError):
        assert any(base in CODES for base in kind.__mro__)


def test_the_field_of_a_bad_request_is_told_twice() -> None:
    status = status_of(errors.InvalidRequest("no", field="spec.name"))
    bad, info = error_details_pb2.BadRequest(), error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert status.details[1].Unpack(bad)
    assert bad.field_violations[0].field == info.metadata["field"] == "spec.name"


def test_a_hint_travels() -> None:
    info = error_details_pb2.ErrorInfo()
    status_of(errors.NotFound("no", hint="try this")).details[0].Unpack(info)
    assert info.metadata["hint"] == "try this"


def test_a_hidden_thing_looks_exactly_like_a_missing_one() -> None:
    hidden = status_of(HiddenFromCaller("there is no job 17", kind="job", id=17))
    missing = status_of(errors.NotFound("there is no job 17", kind="job", id=17))
    assert hidden.SerializeToString() == missing.SerializeToString()


def test_a_huge_error_fits_into_the_trailers() -> None:
    facts = {f"fact_{i}": "x" * 10_000 for i in range(100)}
    status = status_of(errors.InvalidRequest("y" * 100_000, field="z" * 10_000, **facts))
    assert status.ByteSize() < 8 * 1024


def test_control_characters_do_not_travel() -> None:
    status = status_of(errors.InvalidRequest("a\nb\x1b[31m", field="c\rd"))
    assert status.message.isprintable()
    assert b"\x1b" not in status.SerializeToString()


@pytest.mark.parametrize(("facts", "seconds"), [({}, 1), ({"retry_after_s": 42}, 42)])
def test_who_shall_try_again_is_told_when(facts: dict[str, Any], seconds: int) -> None:
    status = status_of(errors.TryAgain("too fast", **facts))
    retry = error_details_pb2.RetryInfo()
    assert status.details[1].Unpack(retry)
    assert retry.retry_delay.seconds == seconds

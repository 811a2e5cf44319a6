"""`v1` only grows: recorded calls of releases are answered as a program of theirs expects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dlq_web.api.openapi import description
from dlq_web.api.stream_reads import LINES
from support.v1_calls import (
    OPENAPI,
    SAID,
    V1Call,
    answered,
    changes,
    lost_words,
    recorded,
    wanted,
    without_prose,
)

pytestmark = pytest.mark.integration
READ = V1Call("GET", "/v1/jobs", None, 200, {"jobs": [{"job_id": "1", "gpus": 2, "name": None}]})


async def test_recorded_calls_are_answered_with_all_that_they_were(tmp_path: Path) -> None:
    before = recorded()
    assert len(before) > 40
    now = await answered(tmp_path, before)
    found = {old.name: list(changes(old, new)) for old, new in zip(before, now, strict=True)}
    assert {name: lost for name, lost in found.items() if lost} == {}


def test_every_read_and_every_parameter_of_it_is_recorded() -> None:
    """`make record-v1` records a new one; from then on it stays."""
    names = {one.name for one in recorded()}
    assert [one.name for one in wanted() if one.name not in names] == []


def test_a_bounded_read_of_output_is_recorded_as_text_and_as_lines() -> None:
    output = [one for one in recorded() if "/logs?" in one.path and one.status == 200]
    assert {one.accept: one.answer for one in output} == {
        "": SAID.decode(),
        LINES: [
            {
                "attempt": 1,
                "offset": 0,
                "next_offset": len(SAID),
                "text": SAID.decode(),
                "end": True,
            }
        ],
    }


def test_the_description_has_all_that_it_had() -> None:
    told = without_prose(description())
    assert list(lost_words(json.loads(OPENAPI.read_text()), told)) == []


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"jobs": [{"job_id": "1", "name": None}]}, ".jobs[].gpus is gone"),
        ({"jobs": [{"job_id": 1, "gpus": 2, "name": None}]}, ".jobs[].job_id was '1' and is 1"),
        ({"jobs": []}, ".jobs is empty"),
        ({}, ".jobs is gone"),
        ({"jobs": [{"job_id": "1", "gpus": None, "name": "x"}]}, ".jobs[].gpus was 2 and is None"),
    ],
)
def test_what_a_program_would_miss_is_named(answer: Any, words: str) -> None:
    assert list(changes(READ, READ._replace(answer=answer))) == [words]


def test_what_comes_is_no_loss() -> None:
    grown = {"jobs": [{"job_id": "7"}, {"job_id": "1", "gpus": 2.5, "name": "x", "more": []}]}
    assert list(changes(READ, READ._replace(answer=grown | {"total": 1}))) == []


def test_a_parameter_that_is_refused_is_named() -> None:
    refused = READ._replace(status=400, answer={"code": "invalid_argument", "reason": "X"})
    assert "answered with 200, and now with 400" in next(changes(READ, refused))


def test_another_word_of_a_refusal_is_named() -> None:
    before = READ._replace(status=404, answer={"code": "not_found", "reason": "NOT_FOUND"})
    now = before._replace(answer={"code": "not_found", "reason": "GONE"})
    assert list(changes(before, now)) == ["reason was NOT_FOUND, and is GONE"]


def test_a_path_a_property_and_a_word_that_go_are_named() -> None:
    before = {"paths": {"/a": {"get": {"type": "string"}}}, "enum": ["x", "y"]}
    now = {"paths": {"/a": {"get": {"type": "integer"}}, "/b": {}}, "enum": ["z", "x"]}
    assert len(list(lost_words(before, now))) == 2

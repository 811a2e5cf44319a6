"""What is stored comes back as it was, and what is not understood is refused."""

import json
import struct
from typing import Any

import pytest
from hypothesis import given

from dlq.v1.job_pb2 import JobSpec
from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.jobs.job import Job, RestartCounts, RestartLimits, RunRules
from dlq_master.model.jobs.recording import Evidence, Recording
from dlq_master.model.nodes.node import Node
from dlq_master.store.batch import JoinToken, User
from dlq_master.store.tables import codec
from dlq_master.store.tables.codec import (
    BodyDamaged,
    coder,
    decode,
    decode_all,
    encode,
    is_intact,
    is_spec_intact,
    spec_of,
    with_sum,
)
from support import stored_values
from support.builders import a_waiting_job
from support.stored_values import a_job


@given(stored_values.jobs)
def test_every_job_comes_back_equal(job: Job) -> None:
    assert decode(encode(job), Job) == job


@given(stored_values.attempts)
def test_every_attempt_comes_back_equal(attempt: Attempt) -> None:
    assert decode(encode(attempt), Attempt) == attempt


@given(stored_values.nodes)
def test_every_node_comes_back_equal(node: Node) -> None:
    assert decode(encode(node), Node) == node


@given(stored_values.users)
def test_every_user_comes_back_equal(user: User) -> None:
    assert decode(encode(user), User) == user


@given(stored_values.tokens)
def test_every_token_comes_back_equal(token: JoinToken) -> None:
    assert decode(encode(token), JoinToken) == token


@given(
    stored_values.teams | stored_values.reservations | stored_values.waits | stored_values.machines
)
def test_everything_told_of_tenants_and_machines_comes_back_equal(value: object) -> None:
    assert decode(encode(value), type(value)) == value


@given(stored_values.recordings)
def test_every_recording_comes_back_equal(recording: Recording) -> None:
    assert decode(encode(recording), Recording) == recording


@given(stored_values.evidence)
def test_every_evidence_comes_back_equal(evidence: Evidence) -> None:
    assert decode(encode(evidence), Evidence) == evidence


@given(stored_values.jobs)
def test_types_come_back_too_not_only_equal_values(job: Job) -> None:
    again = decode(encode(job), Job)

    assert [type(item) for item in again] == [type(item) for item in job]
    assert type(again.rules) is type(job.rules)
    assert type(again.rules.exit0_in_grace) is type(job.rules.exit0_in_grace)


@given(stored_values.jobs, stored_values.jobs)
def test_the_body_before_changes_no_body(before: Job, job: Job) -> None:
    write = coder(Job).write
    assert write is not None
    alone = codec.sealed({**write(job), "v": codec.VERSION})
    for other in (before, job, job._replace(job_id=before.job_id)):
        encode(other)
        assert encode(job) == alone


@given(stored_values.nodes)
def test_equal_values_have_equal_bodies(node: Node) -> None:
    assert encode(node) == encode(node._replace(flags=frozenset(sorted(node.flags, reverse=True))))


def test_fields_at_their_default_are_left_out() -> None:
    body = json.loads(encode(stored_values.a_job()))
    assert list(body)[-1] == "c", "the checksum is the last"
    del body["c"]

    assert body == {
        "v": 1,
        "job_id": 1,
        "user": "alice",
        "name": "job 1",
        "request": {"gpus": 2},
        "submit_time_s": 101.0,
        "state": "queued",
        "sequence": 1,
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"v": 2}, "version 2, known is 1"),
        ({"v": None}, "version None"),
        ({"colour": "red"}, "colour"),
        ({"state": "sleeping"}, "sleeping"),
        ({"request": 7}, "does not fit"),
        ({"request": {"gpus": 0}}, "at least 1 GPU"),
    ],
)
def test_a_body_that_is_not_understood_is_refused(change: dict[str, object], message: str) -> None:
    body = json.loads(encode(stored_values.a_job())) | change
    del body["c"]  # as an older master wrote it

    with pytest.raises(ValueError, match=message):
        decode(json.dumps(body), Job)


def test_a_body_without_a_required_field_is_refused() -> None:
    with pytest.raises(ValueError, match="no name, request, submit_time_s, user"):
        decode('{"v":1,"job_id":1}', Job)


def test_a_type_that_json_cannot_hold_is_refused_before_anything_is_stored() -> None:
    with pytest.raises(TypeError, match="cannot be stored"):
        coder(complex)


def test_many_bodies_are_parsed_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[int] = []
    parse = codec._loads

    def counted(text: str) -> Any:
        passes.append(len(text))
        return parse(text)

    monkeypatch.setattr(codec, "_loads", counted)
    bodies = [encode(stored_values.a_job(number)) for number in range(1, 500)]
    assert decode_all(bodies, Job) == [decode(body, Job) for body in bodies]
    assert len(passes) == 1 + len(bodies)


def test_what_jobs_have_alike_is_one_value_in_memory() -> None:
    first, second = decode_all([encode(stored_values.a_job(number)) for number in (1, 2)], Job)
    assert first.request is second.request
    assert first.rules is second.rules
    assert first.user is second.user


def test_two_values_in_one_body_are_none() -> None:
    with pytest.raises(BodyDamaged):
        decode("{},{}", Job)


def test_a_job_of_before_restart_limits_has_neither_limits_nor_counts() -> None:
    plain = a_waiting_job(1, rules=RunRules(max_restarts=2), restarts=1)
    body = encode(plain)
    assert "limits" not in body
    assert "restart_counts" not in body
    assert decode(body, Job) == plain


def test_limits_and_counts_of_restarts_come_back() -> None:
    rules = RunRules(max_restarts=2, limits=RestartLimits(node=0, gpu=3))
    job = a_waiting_job(1, rules=rules, restart_counts=RestartCounts(node=1, preemption=4))
    again = decode(encode(job), Job)
    assert again == job
    assert (again.rules.limits.node, again.rules.limits.start) == (0, None)


SPEC = JobSpec(name="train", labels={"family": "resnet"}).SerializeToString()


def test_every_changed_bit_of_a_spec_is_found() -> None:
    _, stored = with_sum((1, SPEC))
    assert is_spec_intact(stored)
    for place in range(8 * len(stored)):
        changed = bytearray(stored)
        changed[place // 8] ^= 1 << place % 8
        assert not is_spec_intact(bytes(changed)), place


def test_a_spec_whose_end_the_disk_has_lost_is_found() -> None:
    """SQLite reads zeros where a page is cut. They once counted as a spec without a checksum."""
    _, stored = with_sum((1, SPEC))
    for kept in range(len(stored)):
        assert not is_spec_intact(stored[:kept] + bytes(len(stored) - kept)), kept


def test_a_spec_with_a_lost_sector_is_found() -> None:
    _, stored = with_sum((1, SPEC))
    for end in range(len(stored) - 6, len(stored)):
        assert not is_spec_intact(bytes(end) + stored[end:]), end


def test_a_body_whose_mark_is_changed_is_found() -> None:
    body = encode(a_job(1))
    for place in range(-16, 0):
        for other in ("\0", " ", "x"):
            changed = body[:place] + other + body[len(body) + place + 1 :]
            assert not is_intact(changed), changed[place:]
    assert not is_intact(body[:-16] + "\0" * 16)


def test_specs_and_bodies_of_older_masters_have_no_checksum_and_pass() -> None:
    for spec in (b"", b"\x08\x01", SPEC, SPEC + b"\x09" + struct.pack("<d", 8.0)):
        assert is_spec_intact(spec)
        assert spec_of(spec) == spec
    body = json.loads(encode(a_job(1)))
    del body["c"]
    assert is_intact(json.dumps(body))

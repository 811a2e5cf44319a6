"""Rules of notifications: users edit their own, and the notifier reads all of them.

An address is shown to its owner and to the notifier, since it is often a secret. A web server that
acts for users does not learn stored addresses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from zoneinfo import ZoneInfo

from dlq.v1 import notify_service_pb2 as wire
from dlq_common.errors import InvalidRequest, PermissionDenied
from dlq_common.notices import NOTICES, TARGETS, check_address, check_hours
from dlq_common.text.names import shown
from dlq_common.text.suggest import did_you_mean
from dlq_common.text.units import DAY
from dlq_common.text.wire import to_duration, to_timestamp
from dlq_master.control.read_model.published import Published
from dlq_master.control.stimuli import (
    AddNotifyRule,
    NotifyRule,
    RemoveNotifyRule,
    TestNotifyRule,
    User,
)
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.person import belongs
from dlq_master.planner.forecasts import Range
from dlq_master.rpc.calls.call import DEFAULT_PAGE, Call, page_size_of
from dlq_master.rpc.calls.reads import ENCODED, LOOKED_AT
from dlq_master.rpc.specs.intake import job_id_of, needed
from dlq_master.rpc.specs.spec import check_span
from dlq_master.rpc.views.convert import range_message

START_MOVED = "start_moved"
LONGEST_GATHER_S = float(DAY)
_ZONE = re.compile(r"[A-Za-z0-9_+-]{1,32}(/[A-Za-z0-9_+-]{1,32}){0,2}", re.ASCII)


async def list_notify_rules(
    call: Call, request: wire.ListNotifyRulesRequest
) -> wire.ListNotifyRulesResponse:
    read, caller = call.read, call.caller
    cursor = read.last_sequence
    if not caller.hears_all:
        if request.all_users:
            raise PermissionDenied(
                "the rules of all users are for operators", user=caller.name, needs="operator"
            )
        rules = read.notify_rules(caller.name)
    else:
        everybody = request.all_users or not caller.sees_all
        rules = read.notify_rules("" if everybody else caller.name)
    notifies = caller.hears_all and not caller.sees_all
    in_person = call.identity is not None and call.identity.by is None  # not by a web server
    breathe, answer = call.breathe(), wire.ListNotifyRulesResponse(cursor=cursor)
    for rule in rules:
        message = _message(rule, secret=notifies or (in_person and rule.user == caller.name))
        if notifies:
            owner = read.user(rule.user)
            since_s = 0.0 if owner is None else owner.created_time_s
            message.owner_since_time.CopyFrom(to_timestamp(since_s))
        answer.rules.append(message)
        await breathe(ENCODED)
    return answer


async def add_notify_rule(
    call: Call, request: wire.AddNotifyRuleRequest
) -> wire.AddNotifyRuleResponse:
    rule = request.rule
    _check_word("target", rule.target, TARGETS)
    if not rule.events:
        raise InvalidRequest("name one event at least", field="events")
    for word in rule.events:
        _check_word("events", word, NOTICES)
    try:
        address = check_address(rule.target, rule.address)
    except ValueError as error:
        raise InvalidRequest(str(error), field="address") from None
    if rule.quiet_hours:
        try:
            check_hours(rule.quiet_hours)
        except ValueError as error:
            raise InvalidRequest(str(error), field="quiet_hours") from None
    gather_s = None
    if rule.HasField("gather_duration"):
        gather_s = check_span("gather_duration", rule.gather_duration, 0.0, LONGEST_GATHER_S)
    made = await call.ask(
        AddNotifyRule(
            **call.signed(request),
            target=rule.target,
            address=address,
            events=tuple(word for word in NOTICES if word in set(rule.events)),
            with_output=rule.with_output,
            quiet_hours=rule.quiet_hours,
            time_zone=_zone_of(rule.time_zone),
            gather_s=gather_s,
            signing_key=call.parts.ids.secret() if rule.target == "webhook" else "",
        )
    )
    return wire.AddNotifyRuleResponse(rule=_message(made, secret=True))


async def remove_notify_rule(
    call: Call, request: wire.RemoveNotifyRuleRequest
) -> wire.RemoveNotifyRuleResponse:
    rule_id = _rule_id(request.rule_id)
    await call.ask(RemoveNotifyRule(**call.signed(request), rule_id=rule_id))
    return wire.RemoveNotifyRuleResponse()


async def test_notify_rule(
    call: Call, request: wire.TestNotifyRuleRequest
) -> wire.TestNotifyRuleResponse:
    rule_id = _rule_id(request.rule_id)
    await call.ask(TestNotifyRule(**call.signed(request), rule_id=rule_id))
    return wire.TestNotifyRuleResponse()


async def list_start_estimates(
    call: Call, request: wire.ListStartEstimatesRequest
) -> wire.ListStartEstimatesResponse:
    """The start estimates of jobs of users with such a rule; it only reads the published state."""
    read, most = call.read, min(page_size_of(request.page_size), DEFAULT_PAGE)
    breathe, answer = call.breathe(), wire.ListStartEstimatesResponse()
    first, _, after = request.page_token.partition("/")
    begin = (first, job_id_of(after, "page_token") if after else 0)
    for owner in _owners(read):
        if owner.name < begin[0]:
            continue
        last = begin[1] if owner.name == begin[0] else 0
        for number in read.block_numbers(owner.name, last):
            block = read.block(owner.name, number)
            await breathe(LOOKED_AT * len(block.jobs))
            for job in block.jobs:
                found = read.start_range(job) if _waits(job, owner, last) else None
                if found is None:
                    continue
                if len(answer.jobs) == most:
                    end = answer.jobs[-1]
                    answer.next_page_token = f"{end.user}/{end.job_id}"
                    return answer
                answer.jobs.append(_estimate(job, found))
                await breathe(ENCODED)
    return answer


# --- helpers, in order of use ---------------------------------------------------------------------


def _check_word(field: str, word: str, known: object) -> None:
    words = list(known)  # type: ignore[call-overload]
    if word not in words:
        raise InvalidRequest(
            f"{shown(word)} is none of {', '.join(words)}{did_you_mean(word, words)}", field=field
        )


def _zone_of(text: str) -> str:
    if not text:
        return ""
    if _ZONE.fullmatch(text):
        try:
            ZoneInfo(text)
        except (KeyError, OSError, ValueError):
            pass
        else:
            return text
    raise InvalidRequest(f"{shown(text)} is no time zone, such as Europe/Berlin", field="time_zone")


def _rule_id(text: str) -> str:
    needed(text, "rule_id", "which rule?")
    if not re.fullmatch(r"n[0-9]{1,19}", text, re.ASCII):
        raise InvalidRequest(f"{shown(text)} is no id of a rule, such as n17", field="rule_id")
    return text


def _owners(read: Published) -> Iterator[User]:
    names = {rule.user for rule in read.notify_rules() if START_MOVED in rule.events}
    for name in sorted(names):
        owner = read.user(name)
        if owner is not None:
            yield owner


def _waits(job: Job, owner: User, after: int) -> bool:
    living = not job.ended and job.live_attempt is None
    own = belongs(job, owner.name, owner.person, owner.created_time_s)
    return living and own and job.job_id > after


def _estimate(job: Job, found: Range) -> wire.StartEstimate:
    return wire.StartEstimate(
        job_id=str(job.job_id),
        user=job.user,
        name=job.name,
        submit_time=to_timestamp(job.submit_time_s),
        start_estimate=range_message(found),
    )


def _message(rule: NotifyRule, *, secret: bool) -> wire.NotifyRule:
    return wire.NotifyRule(
        rule_id=rule.rule_id,
        user=rule.user,
        target=rule.target,
        address=rule.address if secret else "",
        events=rule.events,
        create_time=to_timestamp(rule.created_time_s),
        signing_key=rule.signing_key if secret else "",
        with_output=rule.with_output,
        quiet_hours=rule.quiet_hours,
        time_zone=rule.time_zone,
        gather_duration=to_duration(rule.gather_s),
    )

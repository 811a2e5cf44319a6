"""Policies and helper processes as messages."""

from __future__ import annotations

from collections.abc import Mapping

from dlq.v1 import policy_pb2
from dlq_common.errors import InvalidRequest
from dlq_common.text.names import shown
from dlq_common.text.wire import filled, to_duration, to_timestamp
from dlq_master.control.forecast.helper_health import Health
from dlq_master.control.placement.offloaded import Planning
from dlq_master.policy.registry.presets import PRESETS
from dlq_master.store.tables.chosen_policy import Chosen

MOST_SETTINGS = 64
LONGEST_SETTING = 4_096


def policy_message(chosen: Chosen) -> policy_pb2.Policy:
    """The policy, and the person that set it."""
    return filled(
        policy_pb2.Policy,
        chosen,
        settings=dict(chosen.settings),
        set_by=chosen.by,
        set_time=to_timestamp(chosen.since_s),
    )


def preset_messages() -> list[policy_pb2.PolicyPreset]:
    """All presets that a master can run."""
    return [
        policy_pb2.PolicyPreset(
            policy=name, summary=preset.summary, setting_names=sorted(set(preset.settings))
        )
        for name, preset in sorted(PRESETS.items())
        if not preset.simulated
    ]


def planner_message(planning: Planning) -> policy_pb2.Planner:
    """The state of the planning process."""
    facts = planning.process
    if facts is None:
        return policy_pb2.Planner(state="off")
    return policy_pb2.Planner(
        state=facts.state,
        plan_count=facts.answers,
        failure_count=facts.failures,
        start_count=facts.starts,
        useless_count=planning.useless,
        dropped_change_count=planning.dropped,
        last_failure=planning.last_fault or facts.last_failure,
        last_plan_duration=to_duration(facts.last_plan_s),
        longest_plan_duration=to_duration(facts.longest_plan_s),
        rest_duration=to_duration(facts.rest_s) if facts.rest_s else None,
    )


def helper_message(health: Health) -> policy_pb2.Helper:
    """The state of a helper process."""
    return filled(
        policy_pb2.Helper,
        health,
        failing=health.failing,
        failure_count=health.failures,
        since_time=to_timestamp(health.since_s),
    )


def settings_of(settings: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Settings in the order of the request. InvalidRequest: there are too many."""
    if len(settings) > MOST_SETTINGS:
        raise InvalidRequest(f"more than {MOST_SETTINGS} settings", field="settings")
    for key, value in settings.items():
        if len(key) + len(value) > LONGEST_SETTING:
            raise InvalidRequest(f"setting {shown(key)} is too long", field="settings")
    return tuple(sorted(settings.items()))

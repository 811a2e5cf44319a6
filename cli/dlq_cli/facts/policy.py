"""Policies and the planning process in `--json`."""

from __future__ import annotations

from dlq.v1 import policy_pb2
from dlq_cli.facts.common import Facts, instant, seconds


def policy_facts(policy: policy_pb2.Policy) -> Facts:
    """A policy and its author."""
    return {
        "policy": policy.policy,
        "settings": dict(sorted(policy.settings.items())),
        "set_by": policy.set_by or None,
        "set_time": instant(policy.set_time) if policy.HasField("set_time") else None,
    }


def preset_facts(preset: policy_pb2.PolicyPreset) -> Facts:
    """A policy that may be chosen."""
    return {
        "policy": preset.policy,
        "summary": preset.summary,
        "setting_names": list(preset.setting_names),
    }


def helper_facts(helper: policy_pb2.Helper) -> Facts:
    """The state of a helper process of the master."""
    has_since = helper.HasField("since_time")
    return {
        "name": helper.name,
        "failing": helper.failing,
        "failure_count": helper.failure_count,
        "since_time": instant(helper.since_time) if has_since else None,
        "last_error": helper.last_error or None,
    }


def planner_facts(planner: policy_pb2.Planner) -> Facts:
    """How the planning process does."""
    rests = planner.HasField("rest_duration")
    return {
        "state": planner.state,
        "plan_count": planner.plan_count,
        "failure_count": planner.failure_count,
        "start_count": planner.start_count,
        "useless_count": planner.useless_count,
        "dropped_change_count": planner.dropped_change_count,
        "last_failure": planner.last_failure or None,
        "last_plan_seconds": seconds(planner.last_plan_duration),
        "longest_plan_seconds": seconds(planner.longest_plan_duration),
        "rest_seconds": seconds(planner.rest_duration) if rests else None,
    }

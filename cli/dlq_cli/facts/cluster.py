"""Nodes, queues, events, teams, pools, loans, policies, tokens and users as plain values."""

from __future__ import annotations

from dlq.v1 import (
    admin_service_pb2,
    event_pb2,
    forecast_service_pb2,
    job_pb2,
    loan_service_pb2,
    node_pb2,
    policy_pb2,
    pool_service_pb2,
    queue_pb2,
    queue_service_pb2,
    reservation_service_pb2,
    resource_pb2,
    team_pb2,
    team_service_pb2,
)
from dlq_cli.facts.common import Facts, described, instant, seconds

node_facts = described(
    node_pb2.Node,
    """
    node_id hostname? state flags flag_reason? gpus free_gpu_count job_core_count
    free_core_count core_memory_bytes pool labels virtual_devices
    root_jobs cpu_count! memory_bytes! attempts contact_time withheld_gpu_indexes withheld_reason?
    reasons maintenance_end_time boot_id? agent_version? version
    declared_gpu_speeds measured_gpu_speeds straggler
    """,
    straggler=described(
        node_pb2.NodeStraggler,
        "suspected excess_percent! confidence! step_count gang_count told_apart words",
    ),
    gpus=described(resource_pb2.Gpu, "index uuid gpu_type memory_bytes"),
    pool=lambda node: node.pool or "training",
    reasons=described(node_pb2.NodeReason, "kind words? actor? since_time"),
)

# The state of a GPU for people is with `dlq gpus`.
status_facts = described(
    node_pb2.GpuStatus,
    """
    state attempt? job_id conditions temperature_celsius utilization_percent used_memory_bytes
    mean_utilization_percent power_watts clock_mhz idle_s
    """,
    job_id=lambda status: status.attempt.partition(".")[0] or None,
    conditions=described(node_pb2.GpuCondition, "code action detail? since_time"),
)

queue_facts = described(
    queue_pb2.Queue,
    """
    name priority policy is_default levels running_gpu_count waiting_gpu_count running_core_count
    waiting_core_count held_job_count interactive
    """,
    interactive=described(
        queue_pb2.InteractiveLimits,
        """
        default_time_limit_s max_time_limit_s gpus_per_job_count gpus_per_user_count floor_gpus
        """,
    ),
    levels=described(
        queue_pb2.QueueLevel, "level threshold_gpu_seconds waiting_job_count running_job_count"
    ),
)

# The cluster as a whole, and the caller's identity as the master sees it.
cluster_facts = described(
    queue_service_pb2.GetClusterResponse,
    """
    cluster_name master_version epoch caller role policy gpu_count free_gpu_count core_count
    free_core_count master_time
    freeze_reason?
    """,
)

event_facts = described(
    event_pb2.Event,
    "sequence event_time kind job_id? attempt? node_id? cause? actor? data",
)

_RULES = """
    gpu_quota=rules.gpu_quota gpu_limit=rules.gpu_limit running_job_limit=rules.running_job_limit
    queued_job_limit=rules.queued_job_limit share=rules.share
"""
_use_facts = described(
    team_pb2.TeamUse,
    """
    gpu_count borrowed_gpu_count guaranteed_gpu_count running_job_count waiting_job_count job_count
    usage_gpu_seconds use_ratio
    """,
)
_member_facts = described(team_pb2.TeamMember, f"user is_default {_RULES} use!", use=_use_facts)
# A team, its limits and its use; null: not set.
team_facts = described(
    team_pb2.Team,
    f"name {_RULES} guaranteed_gpu_quota use! members create_time version",
    use=_use_facts,
    members=_member_facts,
)
teams_facts = described(
    team_service_pb2.ListTeamsResponse,
    "teams others notice?",
    teams=team_facts,
    others=_member_facts,
)

# A join token without its secret.
token_facts = described(
    admin_service_pb2.JoinToken, "token_id node_id? create_time expire_time created_by?"
)

revocation_facts = described(
    admin_service_pb2.Revocation, "kind name create_time created_by? reason?"
)

grant_facts = described(
    admin_service_pb2.Grant,
    "serial organisation held cluster_name ca_fingerprint team accounts limits create_time "
    "expire_time state? used_gpu_seconds period_gpu_seconds account_time guests users reason?",
    limits=described(
        admin_service_pb2.GrantLimits,
        "gpu_count gpu_hours? period_days queues running_job_count? guaranteed_gpu_count "
        "quota_gpu_count",
    ),
    guests=described(admin_service_pb2.Guest, "name account"),
)

authority_facts = described(
    admin_service_pb2.AuthorityFacts,
    "fingerprint next_fingerprint? changing expire_time members",
    members=described(admin_service_pb2.AuthorityMember, "kind name state"),
)

# A master and its part among several: the leader's epoch, and the last turn it has or has read.
master_facts = described(
    admin_service_pb2.MasterPart,
    """
    address part since_time leader? epoch system? timeline lease_left_s turn read_ago_s reason?
    """,
)

user_facts = described(admin_service_pb2.User, "name role uid gid groups create_time")

policy_facts = described(policy_pb2.Policy, "policy settings set_by? set_time")

preset_facts = described(policy_pb2.PolicyPreset, "policy summary setting_names")

# The state of a helper process of the master.
helper_facts = described(policy_pb2.Helper, "name failing failure_count since_time last_error?")

planner_facts = described(
    policy_pb2.Planner,
    """
    state plan_count failure_count start_count useless_count dropped_change_count last_failure?
    last_plan_seconds! longest_plan_seconds!
    rest_seconds
    """,
)


def decided_facts(answer: admin_service_pb2.GetPolicyResponse) -> Facts:
    """The policy that decides, that of the file, and how its helpers do."""
    return {
        "policy": policy_facts(answer.policy),
        "file_policy": policy_facts(answer.file_policy),
        "planner": planner_facts(answer.planner),
        "helpers": [helper_facts(helper) for helper in answer.helpers],
    }


# A server of the inference side.
server_facts = described(
    loan_service_pb2.LoanServer, "node_id state gpu_count attempts detail since_time actor?"
)

# The controller that lends servers by load.
controller_facts = described(
    loan_service_pb2.LoanController,
    "source busy_share load_time lent_count fault? off_by? off_time",
)

# The effects of a reclaim, planned or done; a done reclaim has no token.
plan_facts = described(
    loan_service_pb2.ReclaimPlan,
    "token? node_ids promised_seconds! proven too_long jobs",
    jobs=described(
        loan_service_pb2.ReclaimedJob,
        """
        job_id user name action gpu_count kept_gpu_count grace_seconds!
        lost_seconds! killed deadline_time
        """,
    ),
)

# A machine that is, or was, rented.
machine_facts = described(
    pool_service_pb2.Machine,
    """
    machine_id=request_id pool node_id instance_id? state since_time! ask_time! end_time fault?
    cost attempts job_ids
    """,
    cost=lambda one: round(one.cost, 6),
)

# A pool with its machines.
pool_facts = described(
    pool_service_pb2.Pool,
    """
    name provider gpu_type gpu_count price_per_hour boot_seconds!
    minimum_billing_seconds! most_count available_until_time
    closed_reason? machines
    """,
    machines=machine_facts,
)

pools_facts = described(
    pool_service_pb2.ListPoolsResponse,
    "pools cost_per_hour most_per_hour day_cost most_per_day",
    pools=pool_facts,
)


def quality_facts(quality: forecast_service_pb2.GetForecastQualityResponse) -> Facts:
    """How good start ranges have been, and the last look of the twin."""
    known, looked = quality.job_count > 0, quality.HasField("look_time")
    return {
        "job_count": quality.job_count,
        "error_median_s": seconds(quality.error_median_duration) if known else None,
        "error_p90_s": seconds(quality.error_p90_duration) if known else None,
        "late_median_s": seconds(quality.late_median_duration) if known else None,
        "within_ratio": round(quality.within_ratio, 4) if known else None,
        "wait_median_s": seconds(quality.wait_median_duration) if known else None,
        "look_time": instant(quality.look_time) if looked else None,
        "world_count": quality.world_count,
        "cpu_s": seconds(quality.cpu_duration) if looked else None,
        "estimate_count": quality.estimate_count,
    }


def reservation_facts(one: reservation_service_pb2.Reservation) -> Facts:
    """A reservation as plain values."""
    return {
        "reservation_id": one.reservation_id,
        "state": one.state,
        "node_ids": list(one.node_ids),
        "begin_time": instant(one.begin_time),
        "end_time": instant(one.end_time),
        "reason": one.reason or None,
        "created_by": one.created_by,
        "job_ids": list(one.job_ids),
        "late_job_ids": list(one.late_job_ids),
    }


audit_facts = described(
    admin_service_pb2.AuditLine,
    "call_time user? role? by? through? certificate? peer? method object? decision",
)

hooks_facts = described(
    admin_service_pb2.HooksFacts,
    """
    file? digest? walls running! start_count! last_failure? rest_s waiting_count! hooks
    """,
    hooks=described(
        admin_service_pb2.HookFacts,
        "hook policy ok_count! refused_count! failed_count! spent_s!",
    ),
)

trial_facts = described(
    admin_service_pb2.HookTrial,
    "job_id? attempt? name notes refusal? hold? failure? printed?",
    notes=described(job_pb2.HookNote, "hook field? before? after? text?"),
)

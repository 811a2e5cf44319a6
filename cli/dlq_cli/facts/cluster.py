"""Nodes, queues, events, pools, loans, policies, tokens and users as plain values."""

from __future__ import annotations

from dlq.v1 import (
    admin_service_pb2,
    event_pb2,
    loan_service_pb2,
    node_pb2,
    policy_pb2,
    pool_service_pb2,
    queue_pb2,
    queue_service_pb2,
)
from dlq_cli.facts.common import Facts, facts_of
from dlq_cli.words import NODE_STATES


def node_facts(node: node_pb2.Node) -> Facts:
    """One machine."""
    reason = "kind words? actor? since_time"
    host = "labels virtual_devices root_jobs cpu_count memory_bytes attempts contact_time"
    return {
        **facts_of(node, "node_id hostname?"),
        "state": NODE_STATES.get(node.state),
        **facts_of(node, "flags flag_reason?"),
        "gpus": [facts_of(gpu, "index uuid gpu_type memory_bytes") for gpu in node.gpus],
        "free_gpu_count": node.free_gpu_count,
        "pool": node.pool or "training",
        **facts_of(node, f"{host} withheld_gpu_indexes withheld_reason?"),
        "reasons": [facts_of(one, reason) for one in node.reasons],
        **facts_of(node, "maintenance_end_time boot_id? agent_version? version"),
    }


def queue_facts(queue: queue_pb2.Queue) -> Facts:
    """One queue and its levels."""
    level = "level threshold_gpu_seconds waiting_job_count running_job_count"
    return {
        **facts_of(queue, "name priority policy is_default"),
        "levels": [facts_of(one, level) for one in queue.levels],
        **facts_of(queue, "running_gpu_count waiting_gpu_count held_job_count"),
    }


def cluster_facts(cluster: queue_service_pb2.GetClusterResponse) -> Facts:
    """The cluster as a whole, and the caller's identity as the master sees it."""
    names = """
        cluster_name master_version epoch caller role policy gpu_count free_gpu_count master_time
        freeze_reason?
    """
    return facts_of(cluster, names)


def event_facts(event: event_pb2.Event) -> Facts:
    """One entry of the journal."""
    names = "sequence event_time kind job_id? attempt? node_id? cause? actor? data"
    return facts_of(event, names)


def token_facts(token: admin_service_pb2.JoinToken) -> Facts:
    """A join token without its secret."""
    return facts_of(token, "token_id node_id? create_time expire_time created_by?")


def user_facts(user: admin_service_pb2.User) -> Facts:
    """A user of the cluster."""
    return facts_of(user, "name role uid gid groups create_time")


def pools_facts(told: pool_service_pb2.ListPoolsResponse) -> Facts:
    """The whole answer of ListPools."""
    return {
        "pools": [pool_facts(pool) for pool in told.pools],
        **facts_of(told, "cost_per_hour most_per_hour day_cost most_per_day"),
    }


def pool_facts(pool: pool_service_pb2.Pool) -> Facts:
    """A pool with its machines."""
    names = """
        name provider gpu_type gpu_count price_per_hour boot_seconds minimum_billing_seconds
        most_count available_until_time closed_reason?
    """
    return facts_of(pool, names) | {"machines": [machine_facts(one) for one in pool.machines]}


def machine_facts(one: pool_service_pb2.Machine) -> Facts:
    """A machine that is, or was, rented."""
    names = (
        "pool node_id instance_id? state since_time ask_time end_time fault? cost attempts job_ids"
    )
    return {"machine_id": one.request_id, **facts_of(one, names), "cost": round(one.cost, 6)}


def server_facts(server: loan_service_pb2.LoanServer) -> Facts:
    """A server of the inference side."""
    return facts_of(server, "node_id state gpu_count attempts detail since_time actor?")


def controller_facts(told: loan_service_pb2.LoanController) -> Facts:
    """The controller that lends servers by load."""
    return facts_of(told, "source busy_share load_time lent_count fault? off_by? off_time")


def plan_facts(plan: loan_service_pb2.ReclaimPlan) -> Facts:
    """The effects of a reclaim, planned or done; a done reclaim has no token."""
    job_names = """
        job_id user name action gpu_count kept_gpu_count grace_seconds lost_seconds killed
        deadline_time
    """
    return {
        **facts_of(plan, "token? node_ids promised_seconds proven too_long"),
        "jobs": [facts_of(job, job_names) for job in plan.jobs],
    }


def policy_facts(policy: policy_pb2.Policy) -> Facts:
    """A policy and its author."""
    return facts_of(policy, "policy settings set_by? set_time")


def preset_facts(preset: policy_pb2.PolicyPreset) -> Facts:
    """A policy that may be chosen."""
    return facts_of(preset, "policy summary setting_names")


def helper_facts(helper: policy_pb2.Helper) -> Facts:
    """The state of a helper process of the master."""
    return facts_of(helper, "name failing failure_count since_time last_error?")


def planner_facts(planner: policy_pb2.Planner) -> Facts:
    """How the planning process does."""
    names = """
        state plan_count failure_count start_count useless_count dropped_change_count last_failure?
        last_plan_seconds longest_plan_seconds rest_seconds
    """
    return facts_of(planner, names)

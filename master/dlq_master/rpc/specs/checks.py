"""The job that checks nodes: a program of the agent's own package. Loaded only if `[checks]` names
a user.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dlq.v1.job_pb2 import JobSpec
from dlq.v1.resource_pb2 import ResourceRequest
from dlq_common.text.wire import to_duration
from dlq_master.control.activity_config import CheckConfig, ChecksConfig
from dlq_master.control.stimuli import SubmitJob
from dlq_master.control.stimuli.jobs import CheckOrder
from dlq_master.model.resources import CORE_TYPE
from dlq_master.rpc.specs.intake import job_stimulus

_GRACE_S = 1.0  # it has nothing to save


def submission(config: ChecksConfig, order: CheckOrder) -> SubmitJob:
    """The job that checks these nodes, as its user would submit it."""
    rule = config.kinds.get(order.kind) or CheckConfig()
    spec = JobSpec(
        name=f"check-{order.kind.replace('_', '-')}",
        command=_command(config, order.kind, rule),
        resources=_resources(order),
        working_directory="/",
        time_limit_duration=to_duration(rule.timeout),
        run_estimate_duration=to_duration(rule.timeout),
        no_requeue=True,
        profile="no",
    )
    spec.preempt.grace_duration.CopyFrom(to_duration(_GRACE_S))
    made = job_stimulus(spec, order.caller, "", brief=True)
    return replace(made, check=order.kind)


def _command(config: ChecksConfig, kind: str, rule: CheckConfig) -> Sequence[str]:
    words = ["python3", "-m", "dlq_nodeagent.checks", kind, "--limit", f"{rule.limit:g}"]
    own = {
        "memory": ["--seconds", f"{config.work:g}"],
        "matrix": ["--seconds", f"{config.work:g}"],
        "disk": ["--directory", config.directory, "--mib", str(config.mib)],
        "checkpoints": ["--mib", str(config.mib)],
        "clock": ["--server", config.clock_server],
        "pull": ["--image", config.image],
        "all_reduce": ["--patience", f"{rule.timeout / 2:g}"],
    }
    return [*words, *own[kind], *(["--heed-load"] if config.heed_load else [])]


def _resources(order: CheckOrder) -> ResourceRequest:
    """All GPUs of each node."""
    found = ResourceRequest(node_count=len(order.node_ids), node_ids=sorted(order.node_ids))
    if order.gpu_type == CORE_TYPE:
        found.core_count = order.devices
    else:
        found.gpu_type, found.gpu_count = order.gpu_type, order.devices
    return found

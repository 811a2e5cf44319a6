"""Reports of agents about their GPUs, checked: short codes, few of them, possible numbers."""

from __future__ import annotations

import re

from dlq.v1 import agent_service_pb2 as agent
from dlq_common.errors import InvalidRequest
from dlq_common.text.names import printable
from dlq_common.text.units import DAY
from dlq_common.text.wire import from_duration, said
from dlq_master.control.stimuli import ToldDisk, ToldGpu, ToldSymptom
from dlq_master.control.stimuli.loans import Reading, TakeLook
from dlq_master.model.ids import NodeId

MOST_GPUS = 64
MOST_SYMPTOMS = 32
LONGEST_DETAIL = 200
OLDEST_S = 366.0 * DAY
_CODE = re.compile(r"[a-z][a-z0-9_]{0,39}\Z", re.ASCII)


def health_of(heartbeat: agent.Heartbeat) -> tuple[ToldGpu, ...] | None:
    """The whole of a node's GPUs; None when the heartbeat does not speak of them."""
    if not heartbeat.HasField("health"):
        return None
    told = tuple(_gpu(gpu) for gpu in heartbeat.health.gpus)
    indexes = {gpu.gpu for gpu in told}
    if len(told) > MOST_GPUS or len(indexes) != len(told):
        raise InvalidRequest("GPU indexes must differ and be few", field="health.gpus")
    return told


def disk_of(heartbeat: agent.Heartbeat) -> ToldDisk | None:
    """The disk of the agent's state; None when the heartbeat does not speak of it."""
    if not heartbeat.HasField("disk"):
        return None
    told = heartbeat.disk
    return ToldDisk(told.full, max(0, told.free_bytes), max(0, told.spare_bytes))


def look_of(look: agent.GpuLook, node_id: NodeId, session_id: int) -> TakeLook:
    """The programs on a node's GPUs. A figure that cannot be counts as something that is there."""
    if len(look.gpus) > MOST_GPUS or len({gpu.index for gpu in look.gpus}) != len(look.gpus):
        raise InvalidRequest("GPU indexes must differ and be few", field="gpu_look.gpus")
    if any(gpu.used_memory_bytes < 0 or gpu.process_count < 0 for gpu in look.gpus):
        raise InvalidRequest("a GPU cannot hold less than nothing", field="gpu_look.gpus")
    return TakeLook(
        node_id=node_id,
        session_id=session_id,
        number=look.number,
        readings=tuple(
            Reading(gpu.index, gpu.used_memory_bytes, gpu.process_count) for gpu in look.gpus
        ),
    )


def _gpu(gpu: agent.GpuHealth) -> ToldGpu:
    if len(gpu.symptoms) > MOST_SYMPTOMS:
        raise InvalidRequest(f"more than {MOST_SYMPTOMS} symptoms", field="health.gpus.symptoms")
    return ToldGpu(
        gpu=gpu.index,
        symptoms=tuple(_symptom(symptom) for symptom in gpu.symptoms),
        temperature_celsius=said(gpu, "temperature_celsius"),
        utilization_percent=said(gpu, "utilization_percent"),
        used_memory_bytes=said(gpu, "used_memory_bytes"),
    )


def _symptom(symptom: agent.GpuSymptom) -> ToldSymptom:
    if not _CODE.match(symptom.code):
        raise InvalidRequest("a symptom's code is a short word", field="health.gpus.symptoms.code")
    return ToldSymptom(
        code=symptom.code,
        age_s=min(max(0.0, from_duration(symptom.age_duration)), OLDEST_S),
        detail=printable(symptom.detail[:LONGEST_DETAIL]),
    )

"""The identity of a process in its job, by the variables that its launcher set."""

from __future__ import annotations

import json
from collections.abc import Mapping

# Launchers that each know their processes; the first with an answer is believed.
_RANKS = (
    ("RANK", "WORLD_SIZE"),
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
_ROLES = {"server": "ps", "ps": "ps", "worker": "worker", "chief": "worker"}


def rank_of(identity: Mapping[str, str]) -> tuple[int | None, int | None]:
    for rank, size in _RANKS:
        if identity.get(rank, "").isdecimal() and identity.get(size, "").isdecimal():
            return int(identity[rank]), int(identity[size])
    return None, None


def role_of(identity: Mapping[str, str]) -> str:
    """`ps` or `worker`, where the environment says so; else empty."""
    told = identity.get("DLQ_ROLE") or identity.get("DMLC_ROLE") or _tensorflow_task(identity)
    return _ROLES.get(told, "")


def _tensorflow_task(identity: Mapping[str, str]) -> str:
    try:
        return str(json.loads(identity.get("TF_CONFIG", ""))["task"]["type"])
    except (ValueError, KeyError, TypeError):
        return ""

"""Every job gets the GPUs it asked for, all or nothing."""

from __future__ import annotations

from dlq_master.model.cluster import Cluster
from dlq_master.model.job import Job
from dlq_master.model.resources import Shape


def shape_of(cluster: Cluster, job: Job) -> Shape:
    """The shape to place."""
    return cluster.shape(job)

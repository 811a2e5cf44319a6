"""The table of a job's fields: one module for each section of `dlq submit --help`.

The order of records is the order in help and templates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from dlq_common.job_fields.field import JobField
from dlq_common.job_fields.table import (
    checkpoints,
    container,
    due,
    elastic_jobs,
    gang,
    gpus,
    job,
    order,
    output_files,
)

_MODULES: tuple[ModuleType, ...] = (
    job, gpus, elastic_jobs, order, due, output_files, checkpoints, gang, container,
)  # fmt: skip


def _declared(module: ModuleType) -> Iterator[JobField[Any]]:
    for each in vars(module).values():
        if isinstance(each, JobField):
            yield each


FIELDS: Mapping[str, JobField[Any]] = {
    field.key: field for module in _MODULES for field in _declared(module)
}

# The sections of `dlq submit --help`, in its order, and the keys whose flags stand in each.
SECTIONS: Mapping[str, tuple[str, ...]] = {
    module.TITLE: tuple(field.key for field in _declared(module) if field.flag)
    for module in _MODULES
}

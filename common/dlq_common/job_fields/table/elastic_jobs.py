"""The numbers of GPUs on which an elastic job runs."""

from __future__ import annotations

from dlq_common.job_fields.field import JobField
from dlq_common.job_fields.reading import elastic
from dlq_common.job_fields.wire import Plain

TITLE = "Elastic jobs"
ELASTIC_GPUS = JobField[object](
    key="elastic.gpus",
    read=elastic.read_range,
    flag="--elastic MIN:MAX[:STEP]",
    help="Run on any number of GPUs in a range, such as 2:8, and be resized while running. The "
    "first number is the base.",
    sample='"2:8"',
    comment="On any number of GPUs between, and on others while it runs.",
)
ELASTIC_SIZES = JobField[object](
    key="elastic.sizes",
    read=elastic.read_sizes,
    flag="--elastic-sizes N,N,...",
    help="Its numbers of GPUs as a list: 2,4,8.",
    sample="[2, 4, 8]",
    comment="Instead: on these numbers of GPUs.",
)
RESIZE = JobField(
    key="elastic.resize",
    read=elastic.read_resize,
    flag="--elastic-mode restart|live",
    help="Way of a resize: restart saves and starts again; live lets torchrun take and release "
    "whole nodes while it runs.  [default: restart]",
    sample='"restart"',
    comment="How it gets others: it saves and starts again, or live; with gpus.",
    wire=Plain[str]("elastic.resize"),
)

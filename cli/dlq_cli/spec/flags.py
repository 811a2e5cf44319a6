"""The flags of `dlq submit` that describe the job: the command line and #DLQ lines share them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dlq_cli.spec.fields import put
from dlq_cli.spec.values.given import Given, Layer, wrong
from dlq_common.job_fields.field import Flag
from dlq_common.job_fields.reading.program import read_assignment, read_label
from dlq_common.job_fields.table import FIELDS

FLAGS: tuple[Flag, ...] = tuple(flag for field in FIELDS.values() for flag in field.flags())
BY_NAME: Mapping[str, Flag] = {name: flag for flag in FLAGS for name in flag.names}

# Slurm's and our own flags of later versions: they are refused, so that users know they had no
# effect.
LATER_FLAGS = frozenset(
    {
        "--account", "--contiguous",
        "--cpus-per-gpu", "--cpus-per-task", "--error", "--exclusive", "--keep-checkpoints",
        "--mail-type", "--mail-user", "--mem-per-gpu", "--no-preempt",
        "--no-requeue", "--notify", "--ntasks",
        "--output", "--preemptible", "--priority", "--qos", "--requeue",
        "--snapshot", "--time-min", "--topology", "--webhook",
        "-A", "-c", "-e", "-n", "-o",
    }
)  # fmt: skip


def put_flag(layer: Layer, flag: Flag, raw: str | bool, origin: str) -> None:
    """Read one occurrence of a flag into `layer`; a repeatable one adds, others override."""
    if not flag.repeat or isinstance(raw, bool):
        put(layer, flag.key, raw, origin, flag.shown)
        return
    try:
        if flag.key in ("mounts", "secrets"):
            put(layer, flag.key, [raw], origin, flag.shown)
        elif flag.key == "env":
            name, value = read_assignment(raw)
            put(layer, "env", [name if value is None else f"{name}={value}"], origin)
        else:
            label, text = read_label(raw)
            layer[f"{flag.key}.{label}"] = Given(text, origin)
    except ValueError as error:
        raise wrong(origin, str(error)) from None


def layer_from(occurrences: Iterable[tuple[Flag, str | bool, str]]) -> Layer:
    """The layer of one source from its (flag, value, origin) in the order written."""
    layer: Layer = {}
    for flag, raw, origin in occurrences:
        put_flag(layer, flag, raw, origin)
    return layer

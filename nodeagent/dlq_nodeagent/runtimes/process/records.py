"""The shim's JSON records as values, and the records the agent writes when the shim could not."""

import json
import os
import re
import zlib
from dataclasses import asdict, fields
from typing import Any

from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.port import ExitRecord, ExitWhy, Started, StartError
from dlq_nodeagent.runtimes.process import layout

_STARTED = tuple(it.name for it in fields(Started) if it.name != "boot_id")
_START_ERROR = ("errno", "stage", "text")
# Written in this order, between the names of the rank and after them.
_PLAIN = (
    *("boot_id", "why", "code", "signal", "start_error", "noticed", "noticed_boottime_ns"),
    *("oom_kills", "peak_memory_bytes", "cpu_ns", "started_boottime_ns", "started_wall_ns"),
    *("ended_boottime_ns", "ended_wall_ns", "log_bytes", "dropped_log_bytes"),
    *("refused_commands", "remaining_pids"),
)
# The last field of a record, and the last one of shims that wrote no sum.
_SUM = b',"crc":'
_END_OF_BEFORE = re.compile(rb'"remaining_pids": ?\d+\}\n?$')


def parse_started(data: bytes) -> Started:
    """A `started.json`; ValueError when it is not one."""
    said = _object(data)
    try:
        numbers = {name: int(said[name]) for name in _STARTED}
        return Started(**numbers, boot_id=str(said["boot_id"]))
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a start record: {error!r}") from error


def parse_exit(data: bytes, key: RankKey, epoch: int) -> ExitRecord:
    """An `exit.json`; ValueError when it is not one.

    Key and epoch are the directory's and the plan's, as launched. A shim that could not read its
    plan may have written others.
    """
    _check_sum(data)
    said = {"noticed_boottime_ns": None} | _object(data)  # shims of before do not say
    try:
        told = {name: said[name] for name in _PLAIN}
        failed, cpu_ns = told["start_error"], told.pop("cpu_ns")
        if failed is not None:
            told["start_error"] = StartError(**{name: failed[name] for name in _START_ERROR})
        return ExitRecord(
            **told | {"why": ExitWhy(told["why"]), "oom_kills": told["oom_kills"] or 0},
            key=key,
            epoch=epoch,
            cpu_s=(cpu_ns or 0) / 1e9,
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"not an exit record: {error!r}") from error


def write_exit(at: int, record: ExitRecord) -> None:
    told = asdict(record) | {"cpu_ns": round(record.cpu_s * 1e9)}
    if record.start_error is not None:
        told["start_error"] = {name: told["start_error"][name] for name in _START_ERROR}
    rank = {"job_id": record.key.job_id, "attempt": record.key.attempt, "epoch": record.epoch}
    said = {"v": 1, **rank, "node_rank": record.key.node_rank} | {it: told[it] for it in _PLAIN}
    layout.write(
        at, layout.EXIT, _with_sum(json.dumps(said).encode()), durable=True, readable_by_gid=None
    )


def start_error(stage: str, error: OSError) -> StartError:
    number = error.errno or 0
    return StartError(stage=stage, errno=number, text=error.strerror or os.strerror(number))


def _with_sum(text: bytes) -> bytes:
    """The JSON of an object with the sum of its bytes as the last field, as the shim writes it."""
    head = text[:-1]
    return head + _SUM + b'"%08x"}\n' % zlib.crc32(head)


def _check_sum(data: bytes) -> None:
    """ValueError for a record that the disk has changed. Shims of before tell no sum, and their
    last field is another one.
    """
    head, found, told = data.rpartition(_SUM)
    if not found and _END_OF_BEFORE.search(data):
        return
    if told != b'"%08x"}\n' % zlib.crc32(head):
        raise ValueError("not an exit record: it does not match its checksum")


def _object(data: bytes) -> dict[str, Any]:
    # Names of files are in it, as bytes that need not be text.
    said = json.loads(data.decode("utf-8", "replace"))
    if not isinstance(said, dict):
        raise ValueError("not a JSON object")
    return said

"""The shim's JSON records as values, and the records the agent writes when the shim could not."""

import json
import os
from typing import Any

from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.port import ExitRecord, ExitWhy, Started, StartError
from dlq_nodeagent.runtimes.process import layout


def parse_started(data: bytes) -> Started:
    """A `started.json`; ValueError when it is not one."""
    said = _object(data)
    try:
        return Started(
            shim_pid=int(said["shim_pid"]),
            shim_start_ticks=int(said["shim_start_ticks"]),
            main_pid=int(said["main_pid"]),
            main_start_ticks=int(said["main_start_ticks"]),
            boot_id=str(said["boot_id"]),
            started_boottime_ns=int(said["started_boottime_ns"]),
            started_wall_ns=int(said["started_wall_ns"]),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a start record: {error!r}") from error


def parse_exit(data: bytes, key: RankKey, epoch: int) -> ExitRecord:
    """An `exit.json`; ValueError when it is not one.

    Key and epoch are the directory's and the plan's, as launched. A shim that could not read its
    plan may have written others.
    """
    said = _object(data)
    try:
        return ExitRecord(
            key=key,
            epoch=epoch,
            why=ExitWhy(said["why"]),
            code=said["code"],
            signal=said["signal"],
            start_error=_start_error(said["start_error"]),
            noticed=said["noticed"],
            noticed_boottime_ns=said.get("noticed_boottime_ns"),  # shims of before do not say
            oom_kills=said["oom_kills"] or 0,
            peak_memory_bytes=said["peak_memory_bytes"],
            cpu_s=(said["cpu_ns"] or 0) / 1e9,
            started_boottime_ns=said["started_boottime_ns"],
            ended_boottime_ns=said["ended_boottime_ns"],
            started_wall_ns=said["started_wall_ns"],
            ended_wall_ns=said["ended_wall_ns"],
            boot_id=said["boot_id"],
            log_bytes=said["log_bytes"],
            dropped_log_bytes=said["dropped_log_bytes"],
            refused_commands=said["refused_commands"],
            remaining_pids=said["remaining_pids"],
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"not an exit record: {error!r}") from error


def write_exit(at: int, record: ExitRecord) -> None:
    """Store a record the agent itself had to make, in the shim's format."""
    error = record.start_error
    said = {
        "v": 1,
        "job_id": record.key.job_id,
        "attempt": record.key.attempt,
        "epoch": record.epoch,
        "node_rank": record.key.node_rank,
        "boot_id": record.boot_id,
        "why": record.why.value,
        "code": record.code,
        "signal": record.signal,
        "start_error": error and {"errno": error.errno, "stage": error.stage, "text": error.text},
        "noticed": record.noticed,
        "noticed_boottime_ns": record.noticed_boottime_ns,
        "oom_kills": record.oom_kills,
        "peak_memory_bytes": record.peak_memory_bytes,
        "cpu_ns": round(record.cpu_s * 1e9),
        "started_boottime_ns": record.started_boottime_ns,
        "started_wall_ns": record.started_wall_ns,
        "ended_boottime_ns": record.ended_boottime_ns,
        "ended_wall_ns": record.ended_wall_ns,
        "log_bytes": record.log_bytes,
        "dropped_log_bytes": record.dropped_log_bytes,
        "refused_commands": record.refused_commands,
        "remaining_pids": record.remaining_pids,
    }
    data = json.dumps(said).encode() + b"\n"
    layout.write(at, layout.EXIT, data, durable=True, readable_by_gid=None)


def start_error(stage: str, error: OSError) -> StartError:
    """An operating system's refusal as a start error."""
    number = error.errno or 0
    return StartError(stage=stage, errno=number, text=error.strerror or os.strerror(number))


def _start_error(said: dict[str, Any] | None) -> StartError | None:
    if said is None:
        return None
    return StartError(stage=said["stage"], errno=said["errno"], text=said["text"])


def _object(data: bytes) -> dict[str, Any]:
    # Names of files are in it, as bytes that need not be text.
    said = json.loads(data.decode("utf-8", "replace"))
    if not isinstance(said, dict):
        raise ValueError("not a JSON object")
    return said

"""Files of hooks for tests, and the process that runs them: in `nobody`'s account where we are
root, else in ours.
"""

from __future__ import annotations

import os
import pwd
from dataclasses import replace
from typing import Any

from dlq.v1.job_pb2 import JobSpec
from dlq_common.clock import Clock, SteadyClock
from dlq_master.control.config import HooksConfig
from dlq_master.hooks.desk import HookDesk
from dlq_master.hooks.process import HookFile, HookLimits, HookProcess, HookStarter, spawning
from dlq_master.model.ids import AttemptKey
from support.master_harness import Master
from support.sim_agent import SimAgent

PATIENCE_S = 60.0  # a machine with other work is slow; nothing of ours takes so long
MEMORY = 256 << 20

# One hook for all tests: the job's name says what it does.
SOURCE = """
import json
from dlq_hooks import Hold, Refuse

kept = []
calls = 0

def on_submit(job, user, context):
    global calls
    calls += 1
    if job.name == "hang":
        while True:
            pass
    if job.name == "throw":
        raise ValueError("no such \\n project")
    if job.name == "exit":
        raise SystemExit(3)
    if job.name == "die":
        import os
        os._exit(3)
    if job.name == "fork":
        import os
        os.fork()
    if job.name == "leak":
        kept.append(bytearray(40 << 20))
    if job.name == "swallow":
        kept.append(bytearray(1 << 30))
    if job.name == "missing":
        import no_such_module
    if job.name == "print":
        print("looked at", job.name)
    if job.name == "garbage":
        import os
        for number in range(3, 64):
            try:
                os.write(number, b"garbage that is no frame")
            except OSError:
                pass
    if job.name == "odd":
        return {"gpus": 3}
    if job.name == "forbidden":
        job.gpus = 64
    if job.name == "steal":
        job.environment["HOME"] = "/root"
    if job.name == "nowhere":
        job.queue = "no-such-queue"
    if job.name == "bad":
        job.labels["two words"] = "x"
    if job.name == "half":
        job.labels["note"] = "\\ud800"
    if job.name == "refuse":
        return Refuse(f"{user.name} has no project")
    if job.name == "warn":
        return ["this queue is closed on Sunday"]
    if job.name == "tell":
        return f"{job.tasks} tasks, {'on trial' if context.dry_run else 'for real'}"
    if job.name == "counted":
        job.labels["calls"] = str(calls)
    if job.name == "change":
        job.time_limit_s = 3600.0
        job.labels["project"] = user.name
        job.environment["SITE"] = context.cluster
        job.nice = 10
        return job, ["your job is short now"]
    return job

def on_start(attempt):
    return [f"{attempt.key} on {','.join(attempt.nodes)}"]

def on_end(attempt):
    if attempt.name == "hang":
        while True:
            pass
    if attempt.name == "print":
        print("looked at", attempt.key)
    if attempt.name == "throw":
        raise KeyError("cost centre")
    if attempt.name == "die":
        import os
        os._exit(3)
    if attempt.name == "silent":
        return None
    if attempt.name == "bare":
        return Hold("look first")
    if attempt.exit_code == 3:
        return Hold("exit 3 means a broken data set"), f"{attempt.key} {attempt.end}"
    return f"{attempt.key} {attempt.end} {attempt.exit_code}"
"""


def starts() -> HookStarter:
    """The process as a master that is root starts it, or one on a development machine."""
    if os.getuid() != 0:
        return spawning("")
    nobody = pwd.getpwnam("nobody")
    return spawning(f"{nobody.pw_uid}:{nobody.pw_gid}")


def a_process(source: str = SOURCE, call_s: float = PATIENCE_S) -> HookProcess:
    """A process of this file that is not started yet."""
    file = HookFile("/etc/dlq/hooks.py", source)
    return HookProcess(file, HookLimits(call_s, MEMORY), starts(), SteadyClock())


def a_desk(
    source: str = SOURCE,
    policy: str = "closed",
    known: set[tuple[str, str]] | None = None,
    clock: Clock | None = None,
    **settings: Any,
) -> HookDesk:
    """A desk with this file. `known`: keys of requests that have been answered."""
    limits: dict[str, Any] = {"time_limit": PATIENCE_S, "memory": MEMORY}
    settings = {**limits, "on_submit": policy, **settings}
    answered = known if known is not None else set()
    return HookDesk(
        HooksConfig(**settings),
        HookFile("/etc/dlq/hooks.py", source),
        starts(),
        clock or SteadyClock(),
        cluster="lab",
        queues=("default",),
        knows=lambda key, request_id: (key, request_id) in answered,
    )


def a_run(master: Master, agent: SimAgent, code: int = 0, name: str = "train") -> AttemptKey:
    """A job that has run, and has ended with this code."""
    spec = JobSpec(name=name, labels={"project": "p1"}).SerializeToString()
    job = master.ask(replace(master.submission(1, name=name), spec=spec)).job
    key = AttemptKey(job.job_id, 1)
    agent.obey()
    agent.start(key)
    agent.report()
    agent.exit(key, code)
    agent.report()
    return key


def a_call(name: str) -> dict[str, Any]:
    """What a hook is told of a job with this name."""
    return {
        "job": {"name": name, "environment": {"HOME": "/home/ada"}},
        "user": {"name": "ada", "role": "user"},
        "context": {"cluster": "lab", "time_s": 0.0, "queues": ["default"]},
    }

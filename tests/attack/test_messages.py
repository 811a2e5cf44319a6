"""Every method, as everybody who has a certificate, with forged requests: the master answers,
stays, and tells nothing.

The methods and their fields come from the descriptors; the daemons are real.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from attack.calling import Caller, Fuzzer, fuzzed, seeds, told
from attack.extent import SEED, seconds
from attack.forging import Forger
from attack.site import EVIL, PEOPLE, AttackedSite, attacked_site
from dlq.v1 import job_pb2
from dlq_client.jobs import Jobs
from dlq_common.identity.pki import Role
from support.waiting import wait_until
from support.wire_methods import Method, every_method

pytestmark = pytest.mark.attack

JOIN = "/dlq.v1.JoinService/"
# They may not see alice's secret, whatever they ask.
STRANGERS = ("mallory", "prism", EVIL)


def known(job_ids: Sequence[str]) -> dict[str, Sequence[str]]:
    """Names that mean something at this cluster, by field."""
    nodes, people = ("n1", "n2", "n3", EVIL), ("alice", "mallory", "olga", "root", "*")
    return {
        "job_id": (*job_ids, *job_ids, "1", "2", "1_0"), "job_ids": job_ids, "job": job_ids,
        "node_id": nodes, "node_ids": nodes, "nodes": nodes, "user": people, "users": people, "name": (*people, *nodes),  # noqa: E501
        "members": people, "queue": ("default", ""), "policy": ("dlq", "fifo", "best-effort"),
        "command": ("/bin/true", "/bin/false"), "working_directory": ("/tmp",), "request_id": ("r1", "r2", "r3"),  # noqa: E501
        "role": ("user", "admin"), "signal": ("TERM", "KILL"), "state": ("running", "queued"),
        "path": ("/etc/shadow", "/tmp"), "page_token": ("", "1", "5"), "script": ("#!/bin/sh\\nexit 0\\n",),  # noqa: E501
    }  # fmt: skip


def fuzzer(
    site: AttackedSite, name: str, role: Role, methods: Sequence[Method], seed: int, jobs: Sequence[str]  # noqa: E501
) -> Fuzzer:  # fmt: skip
    identity = site.identity(name, role)
    forger = Forger(f"{seed}/{name}", known(jobs))
    secret = site.secret if name in STRANGERS else ""
    return Fuzzer(name, Caller(site.api, identity.ca, identity), forger, methods, secret)


def fuzzers(
    site: AttackedSite, roles: dict[str, Role], seed: int, jobs: Sequence[str]
) -> list[Fuzzer]:
    """One for each of these, and for a node one that speaks as nodes do."""
    methods = [method for method in every_method() if not method.path.startswith(JOIN)]
    agents = [method for method in methods if "AgentService" in method.path]
    made = []
    for number, (name, role) in enumerate(roles.items()):
        of_role = [*agents * 6, *methods] if role is Role.NODE else methods
        made.append(fuzzer(site, name, role, of_role, seed + number, jobs))
    return made


def test_strangers_break_nothing_change_nothing_and_learn_nothing() -> None:
    (seed,) = seeds(SEED, 1)
    with attacked_site(SEED) as site, site.connect_person("alice") as line:
        jobs = Jobs(line)
        ids = [jobs.submit(site.ledger_job(3_600.0, 0)).job.job_id for _ in range(2)]
        ids.append(jobs.submit(held(site)).job.job_id)
        for job_id in ids[:2]:
            wait_until(lambda: running(jobs, job_id), what=f"job {job_id} runs")  # noqa: B023
        before = [told_of(jobs, job_id) for job_id in ids]
        roles = {name: PEOPLE[name] for name in ("mallory", "prism")} | {EVIL: Role.NODE}
        master, crowd = site.pid("master"), fuzzers(site, roles, seed, ids)
        with fuzzed(crowd):
            threading.Event().wait(seconds(0.22))
        print(f"\nforged messages, seed {SEED}:\n{told(crowd)}")  # noqa: T201 - the figures of the run
        assert [wrong for one in crowd for wrong in one.wrongs] == []
        assert site.pid("master") == master
        assert site.is_alive("master")
        assert [told_of(jobs, job_id) for job_id in ids] == before
        assert site.wrongs() == []


def test_operators_and_admins_do_not_break_the_master_either() -> None:
    (_, seed) = seeds(SEED, 2)
    with attacked_site(SEED) as site:
        with site.connect_person("alice") as line:
            job_id = Jobs(line).submit(site.ledger_job(3_600.0, 0)).job.job_id
        roles = {"olga": Role.OPERATOR, "root": Role.ADMIN, "n1": Role.NODE}
        master, crowd = site.pid("master"), fuzzers(site, roles, seed, [job_id])
        with fuzzed(crowd):
            threading.Event().wait(seconds(0.18))
        print(f"\nforged messages of the powerful, seed {SEED}:\n{told(crowd)}")  # noqa: T201
        assert [wrong for one in crowd for wrong in one.wrongs] == []
        assert site.pid("master") == master
        assert site.is_alive("master")
        assert site.wrongs() == []


def held(site: AttackedSite) -> job_pb2.JobSpec:
    """A job of alice's that waits, with what nobody else may read."""
    spec = site.ledger_job(1.0, 0)
    spec.hold = True
    spec.script = f"#!/bin/sh\necho {site.secret}\n"
    del spec.command[:]
    return spec


def running(jobs: Jobs, job_id: str) -> bool:
    return jobs.get(job_id).job.attempt_state == job_pb2.ATTEMPT_STATE_RUNNING


def told_of(jobs: Jobs, job_id: str) -> tuple[object, ...]:
    """What others must not change about a job."""
    found = jobs.get(job_id)
    job, fences = found.job, [str(attempt.fence) for attempt in found.attempts]
    return (
        job.state,
        job.attempt_state,
        tuple(job.node_ids),
        fences,
        found.spec.SerializeToString(deterministic=True),
    )

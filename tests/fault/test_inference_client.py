"""The reference client of the inference side (examples/inference) against real daemons, as a user
of that role.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlq.v1 import admin_service_pb2
from dlq.v1 import loan_service_pb2 as wire
from dlq.v1.admin_service_pb2_grpc import AdminServiceStub
from dlq_client.jobs import Jobs
from dlq_client.line.connection import connect
from dlq_client.loans import Loans
from dlq_common.errors import Conflict, IllegalTransition, PermissionDenied
from dlq_common.identity.pki import Role
from support.lender import Lender
from support.waiting import wait_until

pytestmark = pytest.mark.integration

INFERENCE = Path(__file__).parents[2] / "examples" / "inference"
sys.path.append(str(INFERENCE))

from follow_need import Rules, Scheduler, main, read_need  # noqa: E402


@pytest.fixture(scope="module")
def lender(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lender]:
    made = Lender(tmp_path_factory.mktemp("inference"), agents=("i1", "i2"))
    with made.up():
        yield made


@pytest.fixture(scope="module")
def home(lender: Lender) -> Path:
    return lender.log_in_as("serving", Role.INFERENCE)


def states(lender: Lender) -> set[str]:
    return {str(lender.server(name)["state"]) for name in lender.agents}


def wait_for(lender: Lender, *wanted: str) -> None:
    wait_until(lambda: states(lender) == set(wanted), what=f"servers are {wanted}")


@pytest.mark.long("integration/test_rpc_loans.py", "fault/test_loan_kills.py")
def test_it_lends_what_is_not_needed_and_takes_it_back_while_the_master_dies(
    lender: Lender, home: Path, tmp_path: Path
) -> None:
    need, log = tmp_path / "need", tmp_path / "log"
    flags = ("--settle", "0s", "--within", "2s", "--force", "--every", "200ms")
    command = [sys.executable, "-u", str(INFERENCE / "follow_need.py"), str(need), *flags]
    with log.open("wb") as out:
        program = subprocess.Popen(
            command, env=os.environ | {"DLQ_HOME": str(home)}, stdout=out, stderr=out
        )
    try:
        wait_until(lambda: "No such file" in log.read_text(), what="it says that nobody tells")
        assert states(lender) == {"away"}
        need.write_text("0\n")
        wait_for(lender, "lent")
        with lender.connect() as line:
            jobs = Jobs(line)
            spec = lender.ledger_job(600.0, 0)
            spec.resources.gpu_count = 8
            job_id = jobs.submit(spec).job.job_id
            wait_until(lambda: jobs.get(job_id).attempts, what="a job runs on one of them")
            need.write_text("1\n")
            wait_for(lender, "lent", "away")
            wait_until(lambda: "jobs: none" in log.read_text(), what="it was the idle one")
            lender.kill("master")
            need.write_text("2\n")
            lender.start("master")
            lender.wait_for("master")
            wait_for(lender, "away")
            wait_until(lambda: f"jobs: {job_id} ended" in log.read_text(), what="it says who")
            jobs.cancel(job_id, kill=True)
        need.write_text("many\n")
        wait_until(lambda: "'many' is no number of servers" in log.read_text(), what="it says so")
        assert program.poll() is None
    finally:
        program.terminate()
        program.wait()


@pytest.mark.long("integration/test_rpc_loans.py", "fault/test_loan_kills.py")
def test_it_may_lend_and_reclaim_and_nothing_else(lender: Lender, home: Path) -> None:
    with connect(home) as line:
        assert [one.node_id for one in Loans(line).servers()] == ["i1", "i2"]
        admin = AdminServiceStub(line.channel)
        flags = admin_service_pb2.SetNodeFlagsRequest(
            request_id="d", node_id="i1", set_flags=["draining"]
        )
        token = admin_service_pb2.CreateJoinTokenRequest(request_id="t")
        for forbidden in (
            lambda: Jobs(line).submit(lender.ledger_job(1.0, 0)),
            lambda: Jobs(line).list(user="*"),
            lambda: line.call(admin.SetNodeFlags, flags),
            lambda: line.call(admin.CreateJoinToken, token),
        ):
            with pytest.raises(PermissionDenied, match="the role inference may not call"):
                forbidden()


class Overtaken(Loans):
    """Between its first plan and what it makes of it somebody else takes that server."""

    others: Loans | None = None

    def plan(self, *asked: Any, **more: Any) -> wire.ReclaimPlan:
        plan = super().plan(*asked, **more)
        if self.others is not None:
            self.others.reclaim(list(plan.node_ids))
            self.others = None
        return plan


@pytest.mark.long("integration/test_rpc_loans.py", "fault/test_loan_kills.py")
def test_who_is_overtaken_looks_again_and_takes_no_more_than_it_needs(
    lender: Lender, home: Path
) -> None:
    said: list[str] = []
    scheduler = Scheduler(Rules(), say=said.append)
    with connect(home) as line, lender.connect() as other:
        loans = Overtaken(line)
        scheduler.look(loans, 0)
        assert said == ["lent: i1, i2"]
        wait_for(lender, "lent")
        with pytest.raises(IllegalTransition, match="3 servers are asked back, and 2 are lent"):
            loans.reclaim(count=3)
        plan = loans.plan(count=2)
        loans.others = Loans(other)
        scheduler.look(loans, 1)
        assert [word.partition(":")[0] for word in said[1:]] == ["looked again"]
        wait_for(lender, "lent", "away")
        with pytest.raises(Conflict, match="not as it was when plan"):
            loans.reclaim(token=plan.token)
        scheduler.look(loans, 2)
        assert said[-1].startswith("back within 0s: ")
        wait_for(lender, "away")


def test_servers_are_lent_only_when_they_have_been_idle_for_long_enough() -> None:
    class Home:
        """Four servers, of which none is lent."""

        def __init__(self) -> None:
            self.lent: list[int] = []

        def servers(self) -> list[wire.LoanServer]:
            return [wire.LoanServer(node_id=f"i{at}", state="away") for at in range(4)]

        def lend(self, count: int) -> list[wire.LoanServer]:
            self.lent.append(count)
            return []

    now_s, loans = [0.0], Home()
    scheduler = Scheduler(
        Rules(headroom=1, settle_s=60.0), say=lambda _: None, now_s=lambda: now_s[0]
    )
    for at_s, need, lent in (
        (0, 0, []),
        (30, 2, []),
        (60, 0, [1]),
        (91, 0, [1, 3]),
        (92, 3, [1, 3]),
    ):
        now_s[0] = float(at_s)
        scheduler.look(loans, need)  # type: ignore[arg-type]  # as much of a client as it takes
        assert loans.lent == lent, at_s


@pytest.mark.parametrize("text", ["", "many", "1.7", "-1", "nan", "1 2", "\u0663"])
def test_what_is_no_number_of_servers_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "need").write_text(text)
    with pytest.raises(ValueError, match="is no number of servers"):
        read_need(tmp_path / "need")


def test_force_wants_a_time() -> None:
    from click.testing import CliRunner

    done = CliRunner().invoke(main, ["/dev/null", "--force"])
    assert done.exit_code == 2
    assert "--force ends jobs after --within" in done.output

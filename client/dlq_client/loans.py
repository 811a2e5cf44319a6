"""Loans of servers over the wire, for operators and for the inference side's own scheduler."""

from __future__ import annotations

from collections.abc import Sequence

from dlq.v1 import loan_service_pb2 as wire
from dlq.v1.loan_service_pb2_grpc import LoanServiceStub
from dlq_client.line.connection import ServiceCalls
from dlq_common.text.wire import to_duration

# A master looks for the fewest jobs for about 2 s, thrice at most.
PATIENCE_S = 30.0


class Loans(ServiceCalls[LoanServiceStub]):
    """Servers that the inference side lends to training."""

    stub_kind = LoanServiceStub

    def servers(self) -> Sequence[wire.LoanServer]:
        """All servers of the inference side, lent or not."""
        return self._connection.call(self.stub.ListLoans, wire.ListLoansRequest()).servers

    def controller(self) -> wire.LoanController | None:
        """The controller that lends servers by the load of the inference side; None: there is
        none.
        """
        answer = self._connection.call(self.stub.ListLoans, wire.ListLoansRequest())
        return answer.controller if answer.HasField("controller") else None

    def switch(self, *, on: bool) -> wire.LoanController:
        """Follow the load of the inference side from now on, or do not."""
        request = wire.SetLoanControllerRequest(on=on)
        return self._change(self.stub.SetLoanController, request).controller

    def lend(self, node_ids: Sequence[str] = (), count: int = 0) -> Sequence[wire.LoanServer]:
        """Lend these, or this number. They take jobs once their devices show that they are
        empty.
        """
        request = wire.LendServersRequest(node_ids=node_ids, count=count)
        return self._change(self.stub.LendServers, request).servers

    def plan(
        self,
        node_ids: Sequence[str] = (),
        count: int = 0,
        *,
        within_s: float | None = None,
        force: bool = False,
    ) -> wire.ReclaimPlan:
        """The effect of `reclaim` now; its token makes `reclaim` do exactly that."""
        request = wire.PlanReclaimRequest(
            node_ids=node_ids,
            count=count,
            within_duration=None if within_s is None else to_duration(within_s),
            force=force,
        )
        return self._connection.call(self.stub.PlanReclaim, request, deadline_s=PATIENCE_S).plan

    def reclaim(
        self,
        node_ids: Sequence[str] = (),
        count: int = 0,
        *,
        within_s: float | None = None,
        force: bool = False,
        token: str = "",
    ) -> wire.ReclaimServersResponse:
        """Take these back, or this number, or those of a plan. They are gone when their state is
        "away".
        """
        request = wire.ReclaimServersRequest(
            node_ids=node_ids,
            count=count,
            within_duration=None if within_s is None else to_duration(within_s),
            force=force,
            token=token,
        )
        return self._change(self.stub.ReclaimServers, request, deadline_s=PATIENCE_S)

"""Usage of GPUs over the wire."""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf.timestamp_pb2 import Timestamp

from dlq.v1 import usage_service_pb2 as wire
from dlq.v1.usage_service_pb2_grpc import UsageServiceStub
from dlq_client.line.connection import ServiceCalls
from dlq_common.text.wire import to_timestamp


class Usages(ServiceCalls[UsageServiceStub]):
    """The usage that the caller may see."""

    stub_kind = UsageServiceStub

    def get(
        self,
        from_s: float,
        until_s: float | None = None,
        *,
        by: Iterable[str] = (),
        user: str = "",
        team: str = "",
    ) -> wire.GetUsageResponse:
        """GPU-seconds from the day of one instant to that of another, or until now (None); grouped
        by any of day, user, team, class and pool."""
        request = wire.GetUsageRequest(**_span(from_s, until_s), by=by, user=user, team=team)
        return self._connection.call(self.stub.GetUsage, request)

    def costs(
        self,
        from_s: float,
        until_s: float | None = None,
        *,
        by: Iterable[str] = (),
        user: str = "",
        team: str = "",
    ) -> wire.GetCostsResponse:
        """Costs of rented machines and of lateness, from the day of one instant to that of another,
        or until now (None). They are grouped by any of job, user, team, day and pool.
        """
        request = wire.GetCostsRequest(**_span(from_s, until_s), by=by, user=user, team=team)
        return self._connection.call(self.stub.GetCosts, request)


def _span(from_s: float, until_s: float | None) -> dict[str, Timestamp]:
    span = {"from_time": to_timestamp(max(0.0, from_s))}
    return span if until_s is None else {**span, "until_time": to_timestamp(until_s)}

"""When jobs will start, over the wire. Nothing here changes anything."""

from __future__ import annotations

from dlq.v1 import forecast_service_pb2 as wire
from dlq.v1 import job_pb2
from dlq.v1.forecast_service_pb2_grpc import ForecastServiceStub
from dlq_client.line.connection import ServiceCalls
from dlq_common.text.wire import to_duration

# How long the master may take beyond the time that it waits for its twin.
_MARGIN_S = 5.0
# It compares in a minute at most.
_COMPARE_S = 60.0


class Forecasts(ServiceCalls[ForecastServiceStub]):
    """The forecasts of the master's twin."""

    stub_kind = ForecastServiceStub

    def of_job(self, job_id: str, *, wait_s: float) -> wire.EstimateJobResponse:
        """When a job that is there starts and ends; `missing` gives the reason for an unknown
        instant.
        """
        return self._estimate(wire.EstimateJobRequest(job_id=job_id), wait_s)

    def of_spec(self, spec: job_pb2.JobSpec, *, wait_s: float) -> wire.EstimateJobResponse:
        """The same for one that would be submitted now."""
        return self._estimate(wire.EstimateJobRequest(spec=spec), wait_s)

    def _estimate(
        self, request: wire.EstimateJobRequest, wait_s: float
    ) -> wire.EstimateJobResponse:
        request.wait_duration.CopyFrom(to_duration(wait_s))
        deadline_s = wait_s + _MARGIN_S
        return self._connection.call(self.stub.EstimateJob, request, deadline_s=deadline_s)

    def compare(self, request: wire.CompareForecastsRequest) -> wire.CompareForecastsResponse:
        """When all that wait would start if things were otherwise, for operators."""
        deadline_s = _COMPARE_S + _MARGIN_S
        return self._connection.call(self.stub.CompareForecasts, request, deadline_s=deadline_s)

    def quality(self) -> wire.GetForecastQualityResponse:
        """How far first estimates were off."""
        request = wire.GetForecastQualityRequest()
        return self._connection.call(self.stub.GetForecastQuality, request)

"""Rules of notifications over the wire."""

from __future__ import annotations

from collections.abc import Sequence

from dlq.v1 import notify_service_pb2 as wire
from dlq.v1.notify_service_pb2_grpc import NotifyServiceStub
from dlq_client.line.connection import ServiceCalls
from dlq_common.text.wire import to_duration


class NotifyRules(ServiceCalls[NotifyServiceStub]):
    """Messages to users, by mail and by calls of web addresses."""

    stub_kind = NotifyServiceStub

    def list(self, *, all_users: bool = False) -> Sequence[wire.NotifyRule]:
        """The caller's rules, the oldest first; those of all users, for operators."""
        request = wire.ListNotifyRulesRequest(all_users=all_users)
        return self._connection.call(self.stub.ListNotifyRules, request).rules

    def add(
        self,
        target: str,
        address: str,
        events: Sequence[str],
        *,
        with_output: bool = False,
        quiet_hours: str = "",
        time_zone: str = "",
        gather_s: float | None = None,
    ) -> wire.NotifyRule:
        """Add one. QuotaExceeded when the caller has as many as they may."""
        rule = wire.NotifyRule(
            target=target,
            address=address,
            events=events,
            with_output=with_output,
            quiet_hours=quiet_hours,
            time_zone=time_zone,
            gather_duration=to_duration(gather_s),
        )
        return self._change(self.stub.AddNotifyRule, wire.AddNotifyRuleRequest(rule=rule)).rule

    def remove(self, rule_id: str) -> None:
        """Remove one. NotFound: there is none, or it is somebody else's."""
        self._change(self.stub.RemoveNotifyRule, wire.RemoveNotifyRuleRequest(rule_id=rule_id))

    def test(self, rule_id: str) -> None:
        """Have a message sent by it. NotFound as above."""
        self._change(self.stub.TestNotifyRule, wire.TestNotifyRuleRequest(rule_id=rule_id))

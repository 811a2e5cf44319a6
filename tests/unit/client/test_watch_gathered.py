"""Events that come in one message are as good as events that come one by one."""

from dlq.v1 import job_service_pb2 as wire
from dlq_client.watch import _each


def test_events_within_a_message_follow_it() -> None:
    messages = [
        wire.WatchEventsResponse(cursor=1),
        wire.WatchEventsResponse(
            cursor=2, more=[wire.WatchEventsResponse(cursor=at) for at in (3, 4)]
        ),
        wire.WatchEventsResponse(cursor=5),
    ]
    assert [each.cursor for each in _each(messages)] == [1, 2, 3, 4, 5]

"""A quiet watch gives signs of life, from which it can be resumed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from dlq.v1 import job_service_pb2 as wire
from dlq_common.clock import SteadyClock
from dlq_common.identity.pki import Authority, Role, new_key_and_csr
from dlq_master.rpc.calls.auth import Door
from dlq_master.rpc.calls.call import Context
from dlq_master.rpc.jobs.watch import Watch
from support.fake_control import FakeControl


class _Line:
    """The one thing a watch asks of its context: who is on the line."""

    def __init__(self, certificate: bytes) -> None:
        self._certificate = certificate

    def auth_context(self) -> Mapping[str, Iterable[bytes]]:
        return {"x509_pem_cert": [self._certificate]}


async def test_a_keep_alive_carries_the_cursor_past_what_was_not_for_the_watcher() -> None:
    clock = SteadyClock()
    authority, control = Authority.create("lab", clock.now_s()), FakeControl(clock)
    control.add_user("alice", "user")
    for _ in range(3):
        control.note("node_lost", node_id="gpu01")
    certificate = authority.sign_user(
        new_key_and_csr("alice").request, "alice", Role.USER, clock.now_s()
    )
    door = Door("lab", lambda: control.published, clock)
    watch = Watch(control, clock, door, keep_alive_s=0.01)
    context = cast(Context, _Line(certificate))  # the rest of a context is not looked at
    messages = watch.events(wire.WatchEventsRequest(), context)
    first = await anext(messages)
    while first.cursor < 3:
        first = await anext(messages)
    assert not first.HasField("event")
    await messages.aclose()  # type: ignore[attr-defined] # an async generator in fact

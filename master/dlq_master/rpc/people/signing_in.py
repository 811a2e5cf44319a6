"""A one-time link for a browser: a user asks for it in person, and the web server uses it up.

So the web server learns the browser's user from the master, and trusts no other word. The link goes
from the user's terminal to the user's browser.
"""

from __future__ import annotations

from dlq.v1 import identity_service_pb2 as wire
from dlq_common.errors import NotFound, PermissionDenied
from dlq_common.text.wire import to_duration, to_timestamp
from dlq_master.rpc.calls.call import Call
from dlq_master.rpc.links import LIFETIME_S


async def create_sign_in_link(
    call: Call, _request: wire.CreateSignInLinkRequest
) -> wire.CreateSignInLinkResponse:
    """A link for the caller.

    Refused for a certificate that came through a service: a session has tokens, which would outlive
    it.
    """
    if call.identity is not None and call.identity.through:
        raise PermissionDenied(
            f"this certificate came through {call.identity.through}, and makes no link",
            user=call.caller.name,
            hint="sign in at the page as you did for the certificate",
        )
    secret = call.parts.links.make(call.caller.name, call.caller.role)
    return wire.CreateSignInLinkResponse(
        secret=secret,
        lifetime_duration=to_duration(LIFETIME_S),
        web_address=call.parts.web_address,
    )


async def use_sign_in_link(
    call: Call, request: wire.UseSignInLinkRequest
) -> wire.UseSignInLinkResponse:
    """The user of a link, which is used up."""
    link = call.parts.links.use(request.name, request.secret)
    if link is None:
        raise NotFound(
            "this link has been used, or is too old",
            kind="link",
            hint="`dlq web --link` prints a new one",
        )
    return wire.UseSignInLinkResponse(
        name=link.name, role=link.role, create_time=to_timestamp(link.since_s)
    )

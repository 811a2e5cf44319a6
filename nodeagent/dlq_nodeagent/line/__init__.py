"""The connection to the master: certificates, channels, the session and its messages.

`uplink` decides when to dial, send heartbeats and give up. `session` is the stream. `wire` is the
only module that knows both messages and values. `identity` joins and renews, `relay` sends output,
and `samples` sends profiles.
"""

"""The line to the master: certificates, channels, the session and its messages.

`uplink` decides when to dial, beat and give up; `session` is the stream; `wire` is the only module
that knows both messages and values. `identity` joins and renews, `relay` sends output.
"""

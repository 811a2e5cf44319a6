"""Values and state machines of the agent; pure: no clock, no file, no network.

`rank` is the state machine of one rank, and `messages` the wire as values. `port` and `errands` are
the ports to the runtime and to slow work. `report` turns a rank into its report for the master.
"""

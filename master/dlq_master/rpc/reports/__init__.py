"""The calls of agents: one session for each node, and its reports, checked on their way in.

`agent_service` answers the calls; `agent_intake` and `profile_intake` check reports. No report is
trusted for its sender.
"""

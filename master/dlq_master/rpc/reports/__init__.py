"""The calls of agents: one session for each node, and its reports, checked on their way in.

`agent_service` answers the calls; `agent_intake`, `profile_intake` and `steps_intake` check
reports. No report is trusted because of its sender.
"""

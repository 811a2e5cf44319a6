"""The line to the agents: sessions, reports checked on their way in, commands on their way out.

`agent_service` holds one session for each node; `agent_intake`, `health_intake` and
`profile_intake` check reports; `commands` writes messages; `sessions` sends them; the relays pass
bytes of logs and commands. No report is trusted for its sender.
"""

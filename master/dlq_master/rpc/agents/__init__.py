"""The messages and bytes on their way to agents.

`sessions` sends messages, `commands` writes them. The relays pass bytes of logs and commands.
`step_keeper` writes lists of steps. `rpc/reports` reads the messages of agents.
"""

"""The line to the agents: commands on their way out.

`sessions` sends messages, `commands` writes them; the relays pass bytes of logs and commands. The
room of reports beside this one reads the messages that come in.
"""

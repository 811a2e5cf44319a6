"""`dlq-notify`: tells users what happens to their jobs, by the rules that they have made.

`line` follows the master's events and reads the rules. `wording` puts an event into words,
`gathering` collects events, and `letters` makes messages of them. `sending` sends each message
until it has arrived, or a day is over. `store` holds all of it, `targets` are the ways to send, and
`daemon` runs the parts.

A restart sends what was not known to have arrived, with the same id. While the master is away
nothing is lost: events are read from a stored position on. Agents take no part in it.
"""

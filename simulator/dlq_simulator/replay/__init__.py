"""The replay: a virtual clock moves from event to event, and the master's own policies decide.

`engine` runs a whole trace, `clockwork` one instant after the other, `events` is the queue of
instants.
"""

"""The replay: a virtual clock jumps from event to event, and the master's own policies decide.

`engine` runs a whole trace, `clockwork` one instant after another, and `events` is the queue of
instants.
"""

"""The composition of turns: the handler of each stimulus, and the functions that take part in every
turn.

`handlers` is the one list of stimuli and their handlers. `wiring` is the one list of consequences.
They run at each tick, after each step of a state machine, before the plan, before the commit, and
after the turn. `state` puts the slices of all rooms together, and `starting` fills them from the
database. The loop calls these functions in order and knows none of them; nothing else imports this
room but what builds a loop.
"""

"""The composition of turns: which function takes which stimulus, and which ones take part in every
turn.

`handlers` is the one list of what can happen to the master, `wiring` the one list of what follows
from it: at each tick, after each step of a state machine, before the plan, before the commit, and
after the turn. The loop calls these functions in order and knows none of them; nothing else imports
this room but what builds a loop.
"""

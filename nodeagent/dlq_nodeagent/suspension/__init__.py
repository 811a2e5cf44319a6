"""Ranks leave their GPUs without a save: their GPU memory lies in the host's memory meanwhile.

The driver moves the memory of each process, and the processes stand still until they come back.
`suspender.py` has the steps and their way back, `checkpoints.py` the driver's calls,
`standstill.py` the processes. The rank's state machine (model/rank.py) orders a move and takes its
result.

When the agent restarts, the journal says which move was under way. It is ordered again, and goes on
from what the driver says of each process. The master's restart changes nothing here. In silence the
shim ends a suspended rank like any other when its hold is over. A rank that the driver cannot bring
back is ended by the master, and its job goes on from its last checkpoint.
"""

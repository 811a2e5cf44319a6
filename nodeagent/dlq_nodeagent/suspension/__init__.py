"""Suspension: ranks leave their GPUs without a save, and their GPU memory goes to host memory.

The driver moves the memory of each process, and the processes stand still until they come back.
`suspender.py` has the steps and their way back, `checkpoints.py` the driver's calls,
`standstill.py` the processes. The rank's state machine (model/rank.py) orders a move and takes its
result.

When the agent restarts, the journal says which move was under way. It is ordered again, and goes on
from what the driver says of each process. A restart of the master changes nothing here. In silence
the shim ends a suspended rank like any other, when its hold is over. If the driver cannot bring a
rank back, the master ends it, and its job goes on from its last checkpoint.
"""

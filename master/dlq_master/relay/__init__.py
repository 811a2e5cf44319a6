"""The relay: a process beside the master that joins callers and agents, and moves their bytes.

`child` is the master's side, `program` the process, and `pairs` the joined lines in it.
"""

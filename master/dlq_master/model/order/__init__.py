"""Order: the sequence of jobs in a queue.

`order` holds levels, thresholds and positions as integers, `keys` orders by one number, `levels`
finds the jobs whose level changes, `positions` hands out positions. `waiting` and `running` are the
indexes that a plan reads, and `lineup` both in one. Pure.
"""

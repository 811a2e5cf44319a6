"""Estimates: run times, speeds at each size, and the cost of being spread.

`estimate` says from where a run time is known; `scaling` and `slowdowns` are measured, `traffic` is
found by the profiler; `history` and `demand` are what an order and a promise may learn from. Values
only, pure.
"""

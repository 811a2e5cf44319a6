"""The cluster: all frozen values of one instant with their indexes, and its only writers.

`cluster` is the working state, and `drive` the only module that changes it. `frozen` is the same
state as values that travel to another process. Pure, without a clock.
"""

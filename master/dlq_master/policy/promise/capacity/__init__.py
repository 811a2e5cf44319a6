"""Capacity for promises: leases, slots of the grid, and what deadlines ask of the first t slots.

`leases` counts time in whole leases, `grids` says which slots count, `fluid` is the prefix-capacity
model, `rules` holds the settings and the codes of verdicts. Pure.
"""

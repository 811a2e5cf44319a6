"""The choice of deadlines to serve: the selection problem of Chronus (section 3.3.4).

`selector` is the entry point. `relax` builds and solves the linear relaxation, `rounding` and
`core` make it integral, and `solve` lays it out in slots. `price` is the bid price of a GPU.
`printed`, `printed_cycle` and `budget` run the paper's own program, for comparison.
"""

"""The choice of deadlines to promise: the selection problem of Chronus (section 3.3.4).

`selector` is the entry. `relax` builds and solves the linear relaxation, `rounding` and
`core` make it integral, `solve` lays it out in slots. `printed` is the paper's own program, for
comparison.
"""

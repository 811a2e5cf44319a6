"""Jobs that start in one plan, placed together.

`arranging` is the placement by that name, and `batch` collects the jobs. `best` takes the better of
`local_search` (Chronus, Algorithm 1) and the exact program in `place.packing`.
"""

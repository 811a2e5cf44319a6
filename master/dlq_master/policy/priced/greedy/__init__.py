"""The path relinking paper's methods: construction, improvement and path relinking (section 3.3).

`greedy` has the entry points. `construct`, `postprocess`, `relink` and `proxy` are the paper's
steps, `local` is the local search of its program. They work on rows of arrays (`batch`), or on one
schedule (`mutable`).
"""

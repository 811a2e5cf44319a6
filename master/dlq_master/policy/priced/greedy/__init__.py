"""The path relinking paper's methods: construction, improvement and path relinking (section 3.3).

`greedy` is the entry; `construct`, `postprocess`, `relink` and `proxy` are the paper's steps, on
rows of arrays (`batch`) or on one schedule (`mutable`).
"""

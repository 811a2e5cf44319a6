"""Helper processes that compute for the master: the planner and the line to the twin.

`process` runs the planner and `worker` is its main function. `snapshot` carries a view to it, and
`plans` checks its answers. `questions` and `answers` are those of the twin. A helper that fails
delays its answers and stops nothing else.
"""

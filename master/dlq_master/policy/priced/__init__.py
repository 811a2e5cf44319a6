"""Methods that choose rented nodes and GPUs for jobs with a cost of lateness, at the least cost.

`situation` is the input of every method, and its schedule the output. `catalogue` has node types
and prices, and `schedules` checks a schedule. `greedy` has the methods of the path relinking paper,
`compared` those that the paper compares with, and `marginal` is dlq's own. `performance` and
`learning` learn run times. Pure.
"""

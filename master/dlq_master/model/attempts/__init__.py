"""Attempts: one try of a job on given GPUs, its state machine, and the rules of gangs.

`attempt` is the value, `attempt_steps` the table of its states; `gang` turns what single ranks
report into events of the attempt and its job. `claims` says which GPUs an attempt holds, `grace`,
`unsaved` and `costs` what a stop costs, `deadlines` how a job stands to its deadlines. Pure,
without a clock.
"""

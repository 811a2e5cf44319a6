"""Turns the master's launch into a plan that a runtime can start: paths, environment, tasks, ports.

`launching` is the entry. `env`, `slurm` and `live_torchrun` make variables, `tasks` the processes
of a rank.
"""

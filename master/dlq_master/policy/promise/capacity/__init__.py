"""The capacity that promises count on.

`leases` counts work and deadlines in leases, `grids` has the slots and the GPUs in each. `fluid` is
the prefix-capacity model, `margins` the safety margin of estimates, `types` the GPU types on which
a job may be promised. `rules` has the settings and the grounds of verdicts. Pure.
"""

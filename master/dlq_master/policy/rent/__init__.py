"""Machines that are rented beside the cluster's own nodes.

`stage` is the rent stage of a policy, and makes its plan. `line` estimates when each waiting job
would end on own nodes, `times` how long it would run on rented machines. `moving` finds running
jobs that may migrate to a machine. `market` is the input of one decision, `decide` is the rule, and
`placing` fills the machines that are rented already.
"""

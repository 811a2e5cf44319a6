"""Machines that are rented beside the cluster's own nodes.

`stage` is the slot of the policy, and makes the plan. `line` says when jobs would be done on own
nodes, `times` how long they run on machines, and `moving` which running jobs might migrate.
`market` has what one decision reads, `decide` is the rule, and `placing` fills present machines.
"""

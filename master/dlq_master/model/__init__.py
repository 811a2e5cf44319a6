"""The values of the core and their state machines; pure, standard library only.

`jobs`, `attempts`, `nodes` and `machines` have the values and their step functions. `cluster` holds
them all with their indexes, and `cluster.drive` changes them. `view` is the input of a policy,
`plan` its output, and `why` the reasons. `lease` has every rule about terms and holds.
"""

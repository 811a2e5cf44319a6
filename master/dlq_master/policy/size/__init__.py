"""The size stage: how many GPUs does a job get?

`stage` is the slot of a policy. `sizing` is the answer of every rule, `choices` the rules by name.
`elastic` gives bases first and then asks the rule about the rest; `growth` finds the GPUs for
it.
"""

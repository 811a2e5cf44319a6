"""The size stage: how many GPUs does a job get?

`sizing` is what every rule answers, `choices` the rules by name. `elastic` gives bases first and
then asks the rule what to do with the rest (`question`); `growth` finds the GPUs for it.
"""

"""The scheduling policies: pure functions from a view of the cluster to a plan.

`pipeline` calls the six stages, each in a package of its name: `admit`, `partition`, `order`,
`size`, `place`, `transit`. The seventh is `rent`. `policy` holds the choice for each stage, and
`registry` makes it from a name. `turn` plans, checks (`legal`) and applies. `reasons` explains.
"""

"""Reclaims: the choice of lent servers that go back when the inference side asks (Aryl, section 4).

`choices` has the rules by name, and `exact` is the default. `demand` is the input of a rule, and
`whitelist` turns its choice into a plan. `controller` says how many servers may be lent. Pure.
"""

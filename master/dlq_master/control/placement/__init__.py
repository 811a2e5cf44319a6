"""Placement: from the working state to a plan of the policy, and from a plan to changes.

`scheduling` makes and carries out plans, `away` has long ones made by the planning process,
`policies` says which policy decides, `avoiding` keeps jobs off nodes that failed them or are
reserved. A plan that breaks a rule changes nothing and is reported (`plan_faults`). Policies
themselves are pure and live in `dlq_master.policy`.
"""

"""Placement: from the working state to a plan of the policy, and from a plan to changes.

`scheduling` requests plans. The planning process makes long ones (`offloaded`). `execution` carries
every plan out, also those of loans and of rented machines. `policies` says which policy decides,
`avoided_nodes` keeps jobs off nodes that failed them or are reserved. A plan that breaks a rule
changes nothing and is reported (`plan_faults`).
Policies themselves are pure and live in `dlq_master.policy`.
"""

"""The partition stage: which GPUs serve whom this term?

`slots` chooses the jobs with SLO leases in the next slot, `kept_slots` keeps to an earlier plan
while no planner answers. `quotas` and `borrowing` divide GPUs among queues and teams, `profiling`
sets some aside for trials, and `reserved` places the jobs that come before the order. `stage` is
the slot of a policy.
"""

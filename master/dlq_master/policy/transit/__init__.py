"""The transit stage: is the change worth its price, and may it be made now?

`stage` is the slot of a policy. `taking` says when running jobs may be preempted, `guards` which
jobs are left alone. `contest` is the allocator that preempts:
`victims` orders the running jobs, `front` chooses among the ones on the GPUs in question.
`verbs` writes the changes of the plan, and tells a victim by which rule it lost.
"""

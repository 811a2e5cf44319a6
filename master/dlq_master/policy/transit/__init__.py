"""The transit stage: is the change worth its price, and may it be made now?

`taking` says when running work may be preempted, `guards` which jobs are left alone, `costs` what a
preemption costs. `contest` is the allocator that preempts: `victims` orders the running jobs,
`front` chooses among those on the GPUs in question, `preemptible` counts what would be free then.
`rule` tells a victim by which rule it lost.
"""

"""Allocation: every job in priority order takes GPUs of what is left.

`allocator` is the one loop over all jobs, `line` merges waiting and running jobs of one
priority. `space` gives out GPUs that are free or will be soon; `by_count` does the same
where only numbers count. `type_capacity` is what a plan may still give away of one GPU type,
`outcome` is the decision. Preemption is in `policy.transit`.
"""

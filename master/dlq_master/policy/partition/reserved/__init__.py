"""Jobs that are served before the queue: the slots of the present plan, and then trials.

`slot_begin` finds the jobs of the present slot, `slot_holders` places them, `served_first` orders
slots and trials. `defragmentation` and `slot_begin` choose the jobs that move out of the way,
`trials` starts trials, and `trial_nodes` keeps whole nodes free for them.
"""

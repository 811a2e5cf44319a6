"""Jobs that are served before the queue: the slots of the present plan, and then trials.

`slot_begin` finds the jobs of the present slot, and `slot_holders` places them.
`defragmentation` and `slot_begin` choose the jobs that move out of the way,
`trials` starts trials, and keeps whole nodes free for them.
"""

"""Files of jobs, read and made with the rights of the job's user; no content is trusted.

`checkpoints` finds committed checkpoints, `beats` reads progress, and `steps` reads lists of steps.
`user_rights` takes the rights of the user for that.
"""

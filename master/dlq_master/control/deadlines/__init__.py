"""Deadlines after admission: changed by users, at risk, or missed.

`deadline_updates` judges changed deadlines. `risks` tells owners at once when a promise may be
broken. `progress` corrects estimates by the steps of a job.
`missed` ends jobs with `--on-miss cancel`. `policy.promise` decides which deadlines are promised.
"""

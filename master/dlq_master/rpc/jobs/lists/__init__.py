"""Lists of jobs, their orders and their totals.

`wanted` understands a request, `conditions` chooses its jobs, and `selection`
finds them in blocks of jobs. `listing` gives them in the order of their numbers and
counts them, and `ranked` gives them in any other order. `places` says where pages begin. A reader
learns nothing of another user's job by searching, ordering or counting: hidden fields are as if
they were empty.
"""

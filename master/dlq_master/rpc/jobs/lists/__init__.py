"""Lists of jobs, their orders and their totals.

`wanted` reads a request, `conditions` chooses its jobs, and `selection` finds them in blocks of
jobs. `listing` lists them by number and counts them, and `ranked` lists them in any other order.
`places` says where pages begin. A reader learns nothing about another user's job by searching,
ordering or counting: hidden fields count as empty.
"""

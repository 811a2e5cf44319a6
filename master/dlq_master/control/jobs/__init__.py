"""Jobs: accepted, changed, held, released and cancelled by their users.

`submitting` accepts jobs and arrays in one commit. `updating` and `jobs` change them. `gates` and
`eligible` hold jobs back that depend on others. `limits` ends them at their time limit. `recent`
keeps the newest ended jobs in memory, and `waits` adds up the waiting times of each job by reason.
Every request has an idempotency key: asked twice, it is answered twice and done once, also over a
restart.
"""

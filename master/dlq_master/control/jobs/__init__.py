"""Jobs: accepted, changed, held, released and cancelled by their users.

`submitting` accepts jobs and arrays in one commit. `updating` and `jobs` change them. `gates` and
`eligible` hold jobs back that depend on others. `limits` ends them at their time limit. Every
request has an idempotency key: asked twice, it is answered twice and done once, also over a
restart.
"""

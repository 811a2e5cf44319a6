"""Requests that describe jobs: every field checked, and defaults filled in.

`intake` checks common parts of requests, `spec` a whole JobSpec with the help of `container_spec`,
`deadlines`, `elastic`, `lateness` and `node_choice`; `edit` reads what all changes of one job
share. Errors name the field.
"""

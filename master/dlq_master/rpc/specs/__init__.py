"""Requests that describe jobs: every field checked, and defaults filled in.

`intake` turns requests into stimuli. `spec` checks a whole JobSpec by one table of checks, in part
those of `container_spec`, `deadlines`, `elastic` and `node_choice`. Errors name
the field.
"""

"""Requests that describe jobs: every field is checked, and defaults are filled in.

`intake` turns requests into stimuli. `spec` checks a whole JobSpec by one table of checks. Some of
these are in `container_spec`, `deadlines`, `elastic` and `node_choice`. Errors name the field.
"""

"""Reservations: nodes that operators keep free from an instant on, for maintenance.

`reservations` creates and ends them and tells placement which nodes a job must keep off.
`state` remembers when to look next; `warnings` warns the owners of jobs that would still
run then. Reservations are rows of the database, so a restart of the master changes nothing; agents
have no part in them.
"""

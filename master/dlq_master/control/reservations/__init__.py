"""Reservations: nodes that operators keep free from an instant on, for maintenance.

`reservations` creates and ends them, tells placement which nodes a job must keep off, and warns the
owners of jobs that would still run then. `state` remembers when to look next. Reservations are rows
of the database, so a restart of the master changes nothing; agents have no part in them.
"""

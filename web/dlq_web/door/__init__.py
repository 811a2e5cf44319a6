"""Knows the browser. `sessions` has the people who have signed in, `links` the one-time links by
which they came, `guard` refuses requests of others, and `signing` answers at the door.
"""

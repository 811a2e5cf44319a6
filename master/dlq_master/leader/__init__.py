"""One of the masters leads: it holds a lease in a row of the shared database (ADR 31).

`lease` decides, purely: it gets the time and the row's answers. `row` is the port of the row.
"""

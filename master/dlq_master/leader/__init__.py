"""Which of the masters leads: a lease in a row of the database that they share (ADR 28).

`lease` decides, purely: it gets the time and the row's answers. `row` is the port of the row.
"""

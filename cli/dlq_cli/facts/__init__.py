"""Messages of the wire as the plain values of `--json`: units in names, words for enums, null for
unknown.

Written by hand: turning 5,000 jobs into JSON must take a fraction of a second.
"""

"""Messages of the wire as the plain values of `--json`: units in names, words for enums, null for
unknown.

`described` makes the getters of a message once, by the names of its fields: turning 5,000 jobs into
JSON must take a fraction of a second.
"""

"""Messages of the wire as the plain values of `--json`: units in names, words for enums, null for
unknown.

`common.described` makes the getters of a message once, by the names of its fields.
5,000 jobs must become JSON in a fraction of a second.
"""

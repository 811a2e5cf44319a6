"""Messages of the wire as the plain values of `--json`: units in names, words for enums, null for
unknown.

The fields of a job are written out: turning 5,000 jobs into JSON must take a fraction of a second.
`common.facts_of` takes the fields of all other messages by their names.
"""

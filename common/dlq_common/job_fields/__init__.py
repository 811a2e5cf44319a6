"""The fields that a job's spec may have, each declared once.

`table` has one record for each key: flag, sample in the template, reader, place in JobSpec and
limit. The CLI derives from it flags, templates, messages and updates; the master its checks; the
agent the values of a launch. `field` defines a record, `wire` the transport of a value, `limits`
the limits of a value, `reading` the reading of text.

It loads no message and no RPC library, so that `dlq submit --help` is quick.
"""

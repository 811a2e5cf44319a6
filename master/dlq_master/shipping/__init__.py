"""Every commit of the master's database in a second place, within about a second.

`log` reads committed pages from the write-ahead log. `container` is the form of a snapshot and of a
segment on disk. `place` is a directory that takes them, and `line` is the same behind a program
such as ssh. `shipper` is one cycle of the shipping. `program` runs cycles as a process of its own,
and `child` is the master's side of it. `chain` puts a database together again. `status` is what the
process tells the master's host.

The process reads files and never touches the database. A place that is full, slow or away costs
commits nothing.
"""

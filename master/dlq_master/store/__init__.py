"""The database: rows are the truth, the journal is the story, the outbox has what is still to be
sent.

This package has the port, its values, and the statements for every database. Each kind of database
has a package of its own.
"""

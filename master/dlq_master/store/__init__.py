"""Rows are the truth, the journal is the story, the outbox is the intention.

Here are the port, its values, and the statements that every database takes. Each database has a
room of its own.
"""

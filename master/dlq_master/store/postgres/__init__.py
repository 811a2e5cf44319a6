"""The rows lie in a PostgreSQL server, through psycopg 3.

Nothing here is imported unless `[store] backend` says so. Every transaction begins at the row of
the leader (`fence`), and a commit of unknown outcome ends the process.
"""

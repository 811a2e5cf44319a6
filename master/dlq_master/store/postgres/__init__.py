"""The database in a PostgreSQL server, through psycopg 3; imported only if `[store] backend` says
so.

Every transaction begins at the row of the leader (`fence`). A commit with an unknown outcome ends
the process.
"""

"""The places of rows side by side: SQLite, PostgreSQL, and PostgreSQL with a standby."""

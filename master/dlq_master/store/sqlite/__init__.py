"""The tier `single`: the rows lie in one SQLite file on a local disk."""

"""The rows lie in one SQLite file on a local disk: nothing needs to be installed for it."""

"""The database as one SQLite file on a local disk, without anything to install."""

"""The cases, a module for each page: a module's `CASES` are registered because it lies here."""

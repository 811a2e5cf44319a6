"""`make reproduce`: every table and figure of the papers' pages, from one commit (README.md)."""

"""A real master, and people who are signed in at its web server."""

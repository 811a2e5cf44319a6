"""A job's own files, read and made with its user's rights: nothing in them is trusted."""

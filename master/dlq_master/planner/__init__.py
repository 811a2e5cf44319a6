"""Plans that are made in another process: what it sees, what it says, and who watches it."""

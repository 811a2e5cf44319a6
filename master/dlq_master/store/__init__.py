"""SQLite: rows are the truth, the journal is the story, the outbox is the intention."""

"""Commands that stay with a job: its terminal, its input, and the word that somebody is there."""

"""The lines of the race: each is one claim, run on both sides or by dlq alone."""

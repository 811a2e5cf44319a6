"""`dlq debug-dump`: one archive for a report of a fault, without secrets."""

"""`dlq up`: a cluster on the machine of one user, kept running without root."""

"""Commands that work inside a job that runs."""

"""Commands inside a job that runs, and connections to its ports."""

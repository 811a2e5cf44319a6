"""`dlq profile`: record and show the traffic of jobs."""

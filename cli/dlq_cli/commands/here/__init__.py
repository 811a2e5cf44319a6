"""Commands about this client: settings, completion, login, versions, `dlq doctor`, `dlq slurm`."""

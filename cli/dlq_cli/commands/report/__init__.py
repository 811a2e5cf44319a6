"""`dlq report` and `dlq usage`: the work of the cluster."""

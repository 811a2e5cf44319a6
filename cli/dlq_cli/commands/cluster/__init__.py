"""Commands that show the cluster: nodes, GPUs, queues, teams."""

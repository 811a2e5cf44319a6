"""Plans made in another process: its view of the cluster, its answers and its supervision."""

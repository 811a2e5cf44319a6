"""Keys and certificates: the cluster's CA, identities on disk, and join tokens."""

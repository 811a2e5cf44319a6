"""The node agent: runs attempts on one host and reports their states."""

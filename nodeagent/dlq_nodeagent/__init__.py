"""The node agent: runs attempts on one host and reports what became of them."""

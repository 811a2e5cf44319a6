"""Ways to run one attempt on this node: the port, the real `process` runtime and the fake."""

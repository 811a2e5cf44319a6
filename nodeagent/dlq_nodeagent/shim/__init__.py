"""The launch shim: C sources, and what Python must know to find it, feed it and read it."""

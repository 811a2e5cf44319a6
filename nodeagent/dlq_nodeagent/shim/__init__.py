"""The launch shim: C sources, and the Python side that finds, feeds and reads the shim."""

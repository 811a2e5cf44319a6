"""The checks, by subject. Each module has its own as `CHECKS`; `registry.py` has all of them."""
